"""`caesura.toml`: what it may say, and what is said of mistakes in it."""

import json
import string
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesura.tools.config.caesura_toml import ALLOW_ALL, Config, trust
from caesura.tools.services import SetupError

HOSTILE = Path(__file__).parents[1] / "mcp" / "hostile.py"
EVERYTHING = """
allow_private = true
mcp_config = "more.json"

[tools]
enabled = ["calculator", "clock"]

[tools.calculator]
timeout_seconds = 5
max_result_tokens = 50

[limits]
max_turns = 4
max_result_tokens = 300

[artifacts]
directory = "files"
max_bytes = 1000

[data]
directory = "~/kept"

[people]
approval_deadline_seconds = 60

[mcpServers.one]
command = "one"
cwd = "here"
"""


@pytest.fixture
def write(tmp_path):
    """Writes a configuration, and returns its path."""

    def write(text: str, name: str = "caesura.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_all_of_it(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    write(json.dumps({"mcpServers": {"two": {"url": "http://two"}}}), "more.json")
    config = Config.load(write(EVERYTHING))
    assert config.enabled == ("calculator", "clock")
    assert (config.limits.max_turns, config.limits.max_tokens) == (4, None)
    assert config.people.approval_deadline_seconds == 60
    assert list(config.servers) == ["two", "one"]
    assert config.servers["one"].cwd == tmp_path / "here"
    services = config.services()
    assert services.artifacts.directory == tmp_path / "files"
    assert services.data == Path("/home/me/kept")
    assert services.allow_private


def test_an_empty_one_is_the_default(write):
    assert Config.load(write("")).model_copy(update={"path": None}) == Config()


async def test_its_tools(write):
    toolset = Config.load(write(EVERYTHING.replace('mcp_config = "more.json"', ""))).toolset(
        ["calculator", "clock"]
    )
    async with toolset:
        assert toolset.registry.names == ("calculator", "clock")
        calculator, clock = toolset.registry
        assert (calculator.timeout_seconds, calculator.max_result_tokens) == (5, 50)
        assert clock.max_result_tokens == 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[tols]",
            ", line 1: unknown key 'tols'; did you mean 'tools'? allowed: tools, agents",
        ),
        ("\n\nallow_privat = true", ", line 3: unknown key 'allow_privat'; did you mean"),
        ("[limits]\nmax_turn = 3", ", line 1: [limits]: unknown key 'max_turn'; did you mean"),
        ("[limits]\nmax_turns = 0", "[limits]: max_turns: input should be greater than"),
        ("[limits]\nmax_turns = 'x'", "[limits]: max_turns: input should be a valid integer"),
        ("limits = 3", "'limits' must be a table, [limits]"),
        ("[tools]\nenabled = ['serch']", "enabled: unknown key 'serch'; did you mean 'search'?"),
        ("[tools]\nenabled = 'search'", "enabled must be a list of names"),
        ("[tools]\nenabled = [1]", "enabled must be a list of names"),
        ("[tools]\ncalculator = 3", "'calculator' must be a table, [tools.calculator]"),
        ("[tools.calculater]", "unknown key 'calculater'; did you mean 'calculator'?"),
        ("[people]\ndeadline = 3", "[people]: unknown key 'deadline'"),
        ("[artifacts]\nmax_bytes = -1", "[artifacts]: max_bytes: "),
        ("allow_private = 'perhaps'", "allow_private: input should be a valid boolean"),
        ("mcp_config = 3", "mcp_config must be the name of a JSON file"),
        ("mcp_config = 'no.json'", "no.json: cannot be read"),
        ("[mcpServers.files]\ncomand = 'x'", "[mcpServers.files]: unknown key 'comand'; did you"),
        ("mcpServers = 3", "'mcpServers' must be a table, [mcpServers]"),
        ("a = [", "not valid TOML: "),
        ("a = 1\nb = = 2\n", "(at line 2"),
    ],
)
def test_mistakes_name_the_file_the_key_and_what_is_allowed(write, text, said):
    path = write(text)
    with pytest.raises(SetupError) as raised:
        Config.load(path)
    message = str(raised.value)
    assert message.startswith(str(path.parent))
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[tools.calculator]\ntimeout = 3",
            "[tools.calculator]: unknown key 'timeout'; did you mean 'timeout_seconds'? allowed: ",
        ),
        ("[tools.clock]\nretries = 3", "retries need safe_to_repeat"),
        ("[tools.clock]\nconcurrency = 0", "[tools.clock]: concurrency: input should be"),
    ],
)
def test_a_tools_mistakes_are_told_when_it_is_made(write, text, said):
    path = write(text)
    with pytest.raises(SetupError) as raised:
        Config.load(path).toolset().enabled_tools()
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


def test_it_is_looked_for_here_and_then_in_the_users_own_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert Config.load() == Config()
    own = tmp_path / "config" / "caesura" / "caesura.toml"
    own.parent.mkdir(parents=True)
    own.write_text("allow_private = true")
    assert Config.load().path == own
    Path("caesura.toml").write_text("")
    assert Config.load().path == tmp_path / "caesura.toml"


def test_no_such_file(tmp_path):
    with pytest.raises(SetupError, match=r"no.toml: cannot be read: No such file"):
        Config.load(tmp_path / "no.toml")


def test_where_files_go_without_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    services = Config().services()
    assert services.data == tmp_path / "caesura"
    assert services.artifacts.directory == tmp_path / "caesura" / "artifacts"


async def test_its_servers_are_started_and_may_be_left_out(write):
    server = (
        f"command = {sys.executable!r}\nargs = ['-S', '-E', {str(HOSTILE)!r}]\nallow = ['fine']"
    )
    text = f"[tools]\nenabled = ['clock']\n[mcpServers.one]\n{server}\n"
    off = f"[mcpServers.two]\n{server}\ndisabled = true\n"
    config = Config.load(write(text + off))
    async with config.toolset() as toolset:
        assert toolset.registry.names == ("clock", "fine")
    async with config.toolset(["two"]) as toolset:
        assert toolset.registry.names == ("fine",)
    async with config.toolset(["clock"]) as toolset:
        assert toolset.registry.names == ("clock",)
    with pytest.raises(SetupError, match="unknown key 'clok'; did you mean 'clock'"):
        config.toolset(["clok"])


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.sampled_from(
            ["[tools]", "[limits]", "[[tools]]", "[mcpServers.a]", "enabled = []", "max_turns = 1"]
        )
        | st.text(string.printable, max_size=20),
        max_size=6,
    )
)
def test_any_text_is_a_configuration_or_one_sentence(tmp_path, parts):
    path = tmp_path / "any.toml"
    path.write_text("\n".join(parts))
    try:
        Config.load(path)
    except SetupError as error:
        assert "\n" not in str(error).replace(str(path), "")


SERVER = '[mcpServers.evil]\ncommand = "sh"\nargs = ["-c", "touch here"]\n'


@pytest.fixture
def cloned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a directory with somebody's configuration, as a user who has allowed nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(ALLOW_ALL, raising=False)
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    return tmp_path / "repository" / "caesura.toml"


@pytest.mark.parametrize("text", [SERVER, '[tools.calculator]\nnote = "${HOME}"\n'])
def test_a_configuration_that_came_with_the_directory_starts_nothing_by_itself(
    cloned: Path, text: str
) -> None:
    cloned.write_text(text)
    with pytest.raises(SetupError, match="have not allowed it as it is now"):
        Config.load()


def test_what_the_user_allowed_is_loaded_until_it_changes(cloned: Path) -> None:
    cloned.write_text(SERVER)
    config = Config.load(cloned)  # who names a file, allows it
    trust(cloned, config.digest)
    assert set(Config.load().servers) == {"evil"}
    place = cloned.parent.parent / "config" / "caesura" / "trusted.json"
    assert place.stat().st_mode & 0o777 == 0o600
    cloned.write_text(SERVER.replace("touch", "rm"))
    with pytest.raises(SetupError, match="caesura tools trust"):
        Config.load()
    place.write_text("[" * 100_000)
    with pytest.raises(SetupError, match="caesura tools trust"):
        Config.load()


def test_automation_allows_all_and_harmless_files_need_nothing(
    cloned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned.write_text("[limits]\nmax_turns = 3\n")
    assert Config.load().limits.max_turns == 3
    cloned.write_text(SERVER)
    monkeypatch.setenv(ALLOW_ALL, "1")
    assert set(Config.load().servers) == {"evil"}
