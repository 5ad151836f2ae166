"""speak as a model calls it: real espeak-ng, real piper with a stand-in voice, a service."""

import array
import asyncio
import io
import json
import os
import re
import sys
import wave

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.services import SetupError
from caesura.tools.speech.speak import MAX_CHARACTERS, SpeechError, checked_voice, spoken_text
from tests.tools.speech.voices import make_voice

SAVED = re.compile(r"Saved as /artifacts/[0-9a-f]{24}\.wav: WAV sound, (\d+\.\d) s\.")


def heard(result):
    """Seconds, and the loudest sample between 0 and 1; the sentence says the same seconds."""
    assert result.error is None, result.content
    told = float(SAVED.fullmatch(result.content)[1])
    with wave.open(str(result.artifacts[0].path)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth()) == (1, 2)
        seconds = sound.getnframes() / sound.getframerate()
        samples = array.array("h", sound.readframes(sound.getnframes()))
    assert told == pytest.approx(seconds, abs=0.051)
    return seconds, max(map(abs, samples)) / 2**15


@pytest.fixture
def no_program(monkeypatch):
    """Have the library used, whether or not espeak-ng is installed too."""
    pytest.importorskip("espeakng_loader")
    monkeypatch.setattr("shutil.which", lambda name: None)


@pytest.mark.usefixtures("no_program")
async def test_espeak(using):
    call = await using("speak")
    short = heard(await call(text="Hello."))
    long = heard(await call(text="Hello, this sentence takes a good while longer to say."))
    assert 0.2 < short[0] < 2 < long[0] < 10
    assert short[1] > 0.1
    assert long[1] > 0.1


@pytest.mark.usefixtures("no_program")
async def test_espeak_voices_and_pace(using):
    slow = await using("speak", words_per_minute=80)
    fast = await using("speak", words_per_minute=300, voice="de", pitch=80)
    text = "One two three four five six seven."
    assert heard(await slow(text=text))[0] > 1.5 * heard(await fast(text=text))[0]
    assert heard(await fast(text=text, voice="en+f3"))[1] > 0.1
    unknown = await fast(text=text, voice="klingon-x")
    assert unknown.error == "failed"
    assert "unknown voice 'klingon-x'" in unknown.content


@pytest.mark.usefixtures("no_program")
async def test_espeak_speaks_markup_instead_of_obeying_it(using):
    call = await using("speak")
    plain = heard(await call(text="hello"))
    marked = heard(
        await call(text='<speak><break time="30s"/><audio src="/etc/passwd"/>hello</speak>')
    )
    assert plain[0] < marked[0] < 25


@pytest.mark.usefixtures("no_program")
async def test_calls_at_the_same_time(using):
    call = await using("speak")
    results = await asyncio.gather(*(call(text=f"number {n}") for n in range(6)))
    assert len({result.artifacts for result in results}) == 6


PROGRAM = """#!{python}
import json, struct, sys
text = sys.stdin.buffer.read()
json.dump({{"arguments": sys.argv[1:], "text": text.decode()}}, open({log!r}, "w"))
if "xx" in sys.argv:
    sys.exit("Error: The specified espeak-ng voice does not exist.")
head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 0x7ffff024, b"WAVE", b"fmt ", 16, 1, 1, 22050, 44100,
                   2, 16)
sys.stdout.buffer.write(head + struct.pack("<4sI", b"data", 0x7ffff000) + b"\\1\\2" * 22050)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A stand-in for the program: it notes how it was called and writes a second of sound."""
    log = tmp_path / "called.json"
    path = tmp_path / "bin" / "espeak-ng"
    path.parent.mkdir()
    path.write_text(PROGRAM.format(python=sys.executable, log=str(log)))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return log


async def test_the_program_is_preferred(using, program):
    call = await using("speak", words_per_minute=200)
    assert heard(await call(text="--help; \x1b hello"))[0] == 1.0
    called = json.loads(program.read_text())
    assert called["text"] == "--help; hello"
    assert called["arguments"] == [
        *("--stdin", "--stdout", "-b", "1", "-v", "en-us", "-s", "200", "-p", "50")
    ]
    assert "unknown voice 'xx'" in (await call(text="hello", voice="xx")).content


async def test_piper(using, tmp_path):
    pytest.importorskip("piper")
    model = make_voice(tmp_path, speakers={})
    call = await using("speak", backend="piper", voice_file=str(model))
    seconds, loudest = heard(await call(text="Hello there."))
    assert seconds > 0.1
    assert loudest > 0.1
    assert heard(await call(text="Hello there, my friend."))[0] > seconds
    assert "leave voice out" in (await call(text="Hello.", voice="anna")).content


async def test_piper_speakers_and_speed(using, tmp_path):
    pytest.importorskip("piper")
    model = make_voice(tmp_path, speakers={"anna": 0, "bert": 1})
    slow = await using("speak", backend="piper", voice_file=str(model), speed=0.5)
    fast = await using("speak", backend="piper", voice_file=str(model), speed=2.0, voice="bert")
    anna, bert = await slow(text="Hello.", voice="anna"), await fast(text="Hello.")
    assert heard(anna)[0] == pytest.approx(4 * heard(bert)[0], rel=0.01)
    assert anna.artifacts != (await slow(text="Hello.", voice="bert")).artifacts
    assert "unknown voice 'carl': anna, bert" in (await slow(text="a", voice="carl")).content


class Service:
    """A service of speech on the loopback, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.answer = b""
        self.status = 200

    async def speech(self, request: web.Request) -> web.Response:
        self.asked.append(json.loads(await request.read()))
        return web.Response(body=self.answer, status=self.status, content_type="audio/wav")


@pytest.fixture
async def service(unused_tcp_port):
    served = Service()
    app = web.Application()
    app.router.add_post("/v1/audio/speech", served.speech)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    served.url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    yield served
    await runner.cleanup()


async def test_a_service(using, service):
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 24_000, 0, "NONE", ""))
        sound.writeframes(b"\0\x40" * 36_000)
    service.answer = file.getvalue()
    call = await using(
        "speak", allow_private=True, backend="endpoint", url=service.url, model="voices", speed=1.5
    )
    assert heard(await call(text="Hello.", voice="nova"))[0] == 1.5
    assert service.asked == [
        {
            "model": "voices",
            "input": "Hello.",
            "voice": "nova",
            "response_format": "wav",
            "speed": 1.5,
        }
    ]
    service.answer = b"ID3 this is no WAV"
    assert "not a WAV file" in (await call(text="Hello.")).content
    service.status = 401
    assert "401" in (await call(text="Hello.")).content


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"backend": "piper"}, "voice_file: set it"),
        ({"backend": "piper", "voice_file": "/nowhere.onnx"}, "/nowhere.onnx does not exist"),
        ({"backend": "endpoint"}, "no url"),
        ({"backend": "endpoint", "url": "http://[::1]:9/v1"}, "allow_private = true"),
        ({"words_per_minute": 5}, "words_per_minute"),
    ],
)
async def test_what_is_told_at_the_start(using, settings, told):
    with pytest.raises(SetupError, match=told):
        await using("speak", **settings)


async def test_no_espeak_at_all(using, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(SetupError, match=r"pip install .*\[speech\]'"):
        await using("speak")


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "empty"), (" \x00\n\u200b", "empty"), ("a" * (MAX_CHARACTERS + 1), "in parts")],
)
def test_texts_that_are_not_spoken(text, told):
    with pytest.raises(SpeechError, match=told):
        spoken_text(text, MAX_CHARACTERS)


@pytest.mark.parametrize("voice", ["../../etc/passwd", "-x", "a;b", "a" * 41, "é"])
def test_what_is_no_name_of_a_voice(voice):
    with pytest.raises(SpeechError, match="invalid voice name"):
        checked_voice(voice)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Done**: the list is ready.", "Done: the list is ready."),
        ("## Result\n\n* one\n* two", "Result one two"),
        ("Run `make demo` now.", "Run make demo now."),
        ("See [the guide](https://example.org/a/b?c=1).", "See the guide."),
        ("1. First\n2. Then", "1. First 2. Then"),
        ("It is -5 degrees, 3 * 4 * 5, snake_case_name.", None),
        ("C# costs $5 & 10% <of> it_", None),
    ],
)
def test_marks_of_markdown_are_not_spoken(text, said):
    assert spoken_text(text, MAX_CHARACTERS) == (said or text)


@given(st.text(max_size=60))
def test_any_text_is_made_speakable_or_refused(text):
    try:
        spoken = spoken_text(text, 50)
    except SpeechError:
        return
    assert 0 < len(spoken) <= 50
    assert spoken.encode()
    assert not re.search(r"[\x00-\x1f\x7f]", spoken)
