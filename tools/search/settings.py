"""Settings of `[tools.search]`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from caesura.tools.services import ToolSettings


class WikipediaSettings(BaseModel):
    """Settings of `[tools.search.wikipedia]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    contact: str = Field(
        min_length=3,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="an e-mail address or web page of yours; Wikipedia requires it",
    )
    language: str = Field("en", pattern=r"^[a-z][a-z-]{1,15}$", description="which Wikipedia")
    api_url: str | None = Field(None, description="the api.php of another MediaWiki")


class HttpSettings(BaseModel):
    """Settings of `[tools.search.http]`: any service that answers a search with JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    url: str = Field(description="the request URL; {query} and {limit} in it are filled in")
    body: dict[str, Any] | None = Field(
        None, description="JSON body of a POST; {query} and {limit} in its texts are filled in"
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="request headers; ${NAME} is an environment variable"
    )
    results: str = Field("results", description="path of the list of results in the answer")
    title: str = Field("title", description="path of the title in a result")
    text: str = Field("text", description="path of the text in a result")
    source: str = Field("url", description="path of the address in a result")


class Settings(ToolSettings):
    """Settings of the search tool."""

    backend: Literal["corpus", "wikipedia", "http", "bm25s", "tantivy"] = Field(
        "corpus", description="the back end that searches"
    )
    corpus: str | None = Field(
        None, description="the corpus to search; default: your own, else the bundled one"
    )
    results: int = Field(3, ge=1, le=20, description="maximum passages per search")
    result_tokens: int = Field(
        300, ge=40, le=8_000, description="budget for all passages, at 4 characters a token"
    )
    about: str | None = Field(
        None, max_length=300, description="one sentence that tells the model what can be found"
    )
    allow_private: bool = Field(False, description="allow a service whose address is not public")
    cache_hours: float = Field(
        168.0, ge=0, le=8_760, description="how long services' answers are cached; 0: never"
    )
    wikipedia: WikipediaSettings | None = Field(None, description="settings of that back end")
    http: HttpSettings | None = Field(None, description="settings of that back end")
