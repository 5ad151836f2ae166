"""Corpora: SQLite files of passages with a full-text index, one writer and many readers."""

from caesura.tools.search.corpus.index import Change, Corpus, FileRow
from caesura.tools.search.corpus.reader import Reader
from caesura.tools.search.corpus.store import CorpusError, corpora, corpus_path

__all__ = ["Change", "Corpus", "CorpusError", "FileRow", "Reader", "corpora", "corpus_path"]
