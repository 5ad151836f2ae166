"""Plain HTTP: routes, errors and headers."""

import json
from typing import Any

import httpx

from tests.clients.check import Server, check, equal, honoured
from tests.clients.script import say
from tests.kit.request_fields import named

HTTP = "plain HTTP"
ORIGIN = "https://app.example.com"


def post(server: Server, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=200)


def chat(server: Server, text: str, **fields: Any) -> httpx.Response:
    body = {"model": server.model, "messages": [{"role": "user", "content": text}]} | fields
    return post(server, "/v1/chat/completions", **body)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the error of an answer, which must have OpenAI's form."""
    equal(response.status_code, status)
    error = response.json()["error"]
    assert isinstance(error, dict), f"error is {error!r}"
    assert isinstance(error["message"], str) and error["message"]
    assert isinstance(error["type"], str), f"type is {error['type']!r}"
    code = error.get("code")
    assert code is None or isinstance(code, str), f"code is {code!r}, no text"
    return error


@check(HTTP, "chat completion")
def completion(server: Server) -> None:
    answer = chat(server, say("Hello there."))
    equal(answer.status_code, 200)
    equal(answer.json()["choices"][0]["message"]["content"], "Hello there.")


@check(HTTP, "chat stream: lines of SSE, then [DONE]")
def stream(server: Server) -> None:
    answer = chat(server, say("Hello there."), stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line.strip()]
    equal(lines[-1], "data: [DONE]")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    texts = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    equal("".join(texts), "Hello there.")


@check(HTTP, "completions")
def completions(server: Server) -> None:
    prompt = f"<|im_start|>user\n{say('Hello there.')}<|im_end|>\n<|im_start|>assistant\n"
    answer = post(server, "/v1/completions", model=server.model, prompt=prompt, max_tokens=40)
    equal(answer.status_code, 200)
    equal(answer.json()["choices"][0]["text"], "Hello there.")


@check(HTTP, "tokenize and detokenize")
def tokenize(server: Server) -> None:
    made = post(server, "/tokenize", model=server.model, prompt="Hello there.")
    equal(made.status_code, 200)
    back = post(server, "/detokenize", model=server.model, tokens=made.json()["tokens"])
    equal(back.json()["prompt"], "Hello there.")


@check(HTTP, "list of models")
def models(server: Server) -> None:
    (model,) = httpx.get(f"{server.v1}/models").json()["data"]
    equal((model["id"], model["object"]), (server.model, "model"))
    assert model["max_model_len"] > 0


@check(HTTP, "health, version, metrics")
def health(server: Server) -> None:
    for path in ("/health", "/version", "/metrics"):
        equal(httpx.get(f"{server.url}{path}").status_code, 200)


@check(HTTP, "error of an unknown route")
def unknown_route(server: Server) -> None:
    error_of(httpx.get(f"{server.v1}/nothing"), 404)


@check(HTTP, "error of a wrong method")
def wrong_method(server: Server) -> None:
    error_of(httpx.get(f"{server.v1}/chat/completions"), 405)


@check(HTTP, "error of a body that is no JSON")
def no_json(server: Server) -> None:
    headers = {"Content-Type": "application/json"}
    url = f"{server.v1}/chat/completions"
    error_of(httpx.post(url, content=b"{", headers=headers), 400)


@check(HTTP, "error of an unknown model: code model_not_found")
def unknown_model(server: Server) -> None:
    error = error_of(chat(server, "Hello.", model="nothing"), 404)
    equal(error["code"], "model_not_found")


@check(HTTP, "error of a long context: code context_length_exceeded")
def long_context(server: Server) -> None:
    error = error_of(chat(server, "far too long " * 9000), 400)
    equal(error["code"], "context_length_exceeded")


@check(HTTP, "error of a wrong type names the field")
def wrong_type(server: Server) -> None:
    hot = next(wrong for wrong in named("temperature").refused if isinstance(wrong.value, str))
    error = error_of(chat(server, "Hello.", temperature=hot.value), 400)
    assert hot.param in f"{error.get('param')} {error['message']}", error


@check(HTTP, "a lone surrogate is refused")
def surrogate(server: Server) -> None:
    message = '{"role": "user", "content": "half \\ud83d"}'
    body = f'{{"model": "{server.model}", "messages": [{message}]}}'
    headers = {"Content-Type": "application/json"}
    error_of(httpx.post(f"{server.v1}/chat/completions", content=body, headers=headers), 400)


@check(HTTP, "a body that is not declared as JSON is refused")
def declared(server: Server) -> None:
    body = json.dumps({"model": server.model, "messages": [{"role": "user", "content": "Hi"}]})
    headers = {"Content-Type": "text/plain"}
    answer = httpx.post(f"{server.v1}/chat/completions", content=body, headers=headers, timeout=200)
    assert answer.status_code in (400, 415, 422), answer.status_code


@check(HTTP, "CORS preflight of a named origin")
def preflight(server: Server) -> None:
    headers = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    answer = httpx.options(f"{server.v1}/chat/completions", headers=headers)
    assert answer.status_code in (200, 204), answer.status_code
    assert answer.headers["access-control-allow-origin"] in (ORIGIN, "*")
    assert "POST" in answer.headers["access-control-allow-methods"]


@check(HTTP, "pages of other origins are kept out")
def foreign_page(server: Server) -> None:
    headers = {"Origin": "https://elsewhere.example"}
    body = {"model": server.model, "messages": [{"role": "user", "content": say("Hi.")}]}
    url = f"{server.v1}/chat/completions"
    answer = httpx.post(url, json=body, headers=headers, timeout=200)
    allowed = answer.headers.get("access-control-allow-origin")
    honoured(answer.status_code == 403 and allowed is None, f"answered, for origin {allowed}")


@check(HTTP, "logit_bias")
def logit_bias(server: Server) -> None:
    made = post(server, "/tokenize", model=server.model, prompt="7", add_special_tokens=False)
    (token,) = made.json()["tokens"]
    bias = {str(token): 100}
    answer = chat(server, "Hello.", logit_bias=bias, max_tokens=3, temperature=0)
    honoured(answer.json()["choices"][0]["message"]["content"] == "777", "logit_bias")


@check(HTTP, "stop_token_ids")
def stop_token_ids(server: Server) -> None:
    made = post(server, "/tokenize", model=server.model, prompt=".", add_special_tokens=False)
    answer = chat(server, say("One. Two."), stop_token_ids=made.json()["tokens"])
    text = answer.json()["choices"][0]["message"]["content"]
    honoured(text.startswith("One") and "Two" not in text, f"content is {text!r}")


@check(HTTP, "min_tokens")
def min_tokens(server: Server) -> None:
    answer = chat(server, say("Hi."), min_tokens=20, max_tokens=30)
    honoured(answer.json()["usage"]["completion_tokens"] >= 20, "min_tokens")


@check(HTTP, "prompt_logprobs")
def prompt_logprobs(server: Server) -> None:
    answer = chat(server, say("Hi."), prompt_logprobs=1).json()
    honoured(len(answer.get("prompt_logprobs") or []) > 5, "prompt_logprobs")


@check(HTTP, "return_token_ids")
def return_token_ids(server: Server) -> None:
    answer = chat(server, say("Hi."), return_token_ids=True).json()
    honoured(answer["choices"][0].get("token_ids"), "return_token_ids")


@check(HTTP, "structured_outputs: choice")
def choice(server: Server) -> None:
    answer = chat(server, say("Maybe."), structured_outputs={"choice": ["yes", "no"]})
    text = answer.json()["choices"][0]["message"]["content"]
    honoured(text in ("yes", "no"), f"content is {text!r}")


@check(HTTP, "structured_outputs: regex")
def regex(server: Server) -> None:
    answer = chat(server, say("Maybe."), structured_outputs={"regex": "[0-9]{3}"})
    text = answer.json()["choices"][0]["message"]["content"]
    honoured(len(text) == 3 and text.isdigit(), f"content is {text!r}")


@check(HTTP, "chat_template_kwargs and chat template are of the model")
def render(server: Server) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    made = post(server, "/tokenize", model=server.model, messages=messages)
    usage = chat(server, "Hi", max_tokens=1).json()["usage"]
    equal(usage["prompt_tokens"], made.json()["count"])


@check(HTTP, "embeddings of a generative model are refused")
def embeddings(server: Server) -> None:
    answer = post(server, "/v1/embeddings", model=server.model, input="Hello.")
    assert 400 <= answer.status_code < 500, answer.status_code
    error_of(answer, answer.status_code)
