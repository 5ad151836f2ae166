"""The corpus that comes with Caesura: short articles, indexed at the first use."""

from pathlib import Path

from caesura.tools.search.corpus import Corpus, CorpusError, corpora, corpus_path
from caesura.tools.search.corpus.store import BUNDLED_CORPUS, DEFAULT_CORPUS, has_passages
from caesura.tools.search.reading import ReadError

ARTICLES = Path(__file__).parent / "articles"


def corpus_to_search(data: Path, name: str | None) -> Path:
    """Return the file of the corpus `name`; None: the user's own corpus, else the bundled one.

    The user's own corpus does not count while it has no passages. data: the directory for
    tools' files. Raises CorpusError.
    """
    if name is None:
        own = DEFAULT_CORPUS in corpora(data) and has_passages(corpus_path(data, DEFAULT_CORPUS))
        name = DEFAULT_CORPUS if own else BUNDLED_CORPUS
    return bundled_corpus(data) if name == BUNDLED_CORPUS else corpus_path(data, name)


def bundled_corpus(data: Path) -> Path:
    """Return the bundled corpus's file, updated to the installed articles; blocks milliseconds.

    Raises CorpusError if the data directory is not writable.
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
        raise CorpusError(
            f"the bundled articles are incomplete ({error}); reinstall caesura"
        ) from None
    return path
