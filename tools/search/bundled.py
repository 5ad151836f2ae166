"""The corpus that Caesura brings along: short articles of its own, indexed when first needed."""

from pathlib import Path

from caesura.tools.search.corpus import Corpus, CorpusError, corpora, corpus_path
from caesura.tools.search.corpus.store import BUNDLED_CORPUS, DEFAULT_CORPUS, has_passages
from caesura.tools.search.reading import ReadError

ARTICLES = Path(__file__).parent / "articles"


def corpus_to_search(data: Path, name: str | None) -> Path:
    """The file of the corpus of that name; None: the user's own, else the one brought along.

    A corpus of the user's own in which there is nothing, as after adding files that cannot be
    read, does not count. data: the directory for what tools keep. Raises CorpusError.
    """
    if name is None:
        own = DEFAULT_CORPUS in corpora(data) and has_passages(corpus_path(data, DEFAULT_CORPUS))
        name = DEFAULT_CORPUS if own else BUNDLED_CORPUS
    return bundled_corpus(data) if name == BUNDLED_CORPUS else corpus_path(data, name)


def bundled_corpus(data: Path) -> Path:
    """The corpus's file, brought up to what is installed; blocking, for milliseconds.

    Raises CorpusError if the directory for data cannot be written.
    """
    path = corpus_path(data, BUNDLED_CORPUS)
    articles = sorted(ARTICLES.glob("*.md"))
    try:
        with Corpus(path) as corpus:
            for article in articles:
                corpus.add(article, article.name)
            here = {article.resolve() for article in articles}
            corpus.remove([row.path for row in corpus.files() if row.path not in here])
    except ReadError as error:
        raise CorpusError(f"Caesura is not installed whole: {error}") from None
    return path
