"""What `[tools.search]` of a configuration may say."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from caesura.tools.services import ToolSettings


class WikipediaSettings(BaseModel):
    """`[tools.search.wikipedia]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    contact: str = Field(
        min_length=3,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="an address or a page where its operators reach you; they ask for it",
    )
    language: str = Field("en", pattern=r"^[a-z][a-z-]{1,15}$", description="which Wikipedia")
    api_url: str | None = Field(None, description="another MediaWiki's api.php")


class HttpSettings(BaseModel):
    """`[tools.search.http]`: any service that answers a search with JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(description="where to ask; {query} and {limit} in it are filled in")
    body: dict[str, Any] | None = Field(
        None, description="posted as JSON if given; {query} and {limit} in its texts are filled in"
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="sent along; ${NAME} is the environment variable NAME"
    )
    results: str = Field("results", description="where the list of results stands in the answer")
    title: str = Field("title", description="where its title stands in a result")
    text: str = Field("text", description="where its text stands")
    source: str = Field("url", description="where its address stands")


class Settings(ToolSettings):
    """The search tool's settings."""

    backend: Literal["corpus", "wikipedia", "http", "bm25s", "tantivy"] = Field(
        "corpus", description="what is searched, and how"
    )
    corpus: str | None = Field(
        None, description="which corpus; by default your own, else the one that is brought along"
    )
    results: int = Field(3, ge=1, le=20, description="how many passages a search brings at most")
    result_tokens: int = Field(
        300, ge=40, le=8_000, description="how long all of them may be, at 4 characters a token"
    )
    about: str | None = Field(
        None, max_length=300, description="what can be found, for the model: one sentence"
    )
    allow_private: bool = Field(
        False, description="the service may have an address that is not public"
    )
    cache_hours: float = Field(
        168.0, ge=0, le=8_760, description="how long answers of services are kept; 0: not at all"
    )
    wikipedia: WikipediaSettings | None = Field(None, description="for that back end")
    http: HttpSettings | None = Field(None, description="for that back end")
