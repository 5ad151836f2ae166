#!/usr/bin/env bash
# Installs one lock into one virtual environment, and says what it does:
#   requirements/install.sh VENV LOCK [WHAT]
# With WHAT, the lock brings only that: a failure is told in one line, and is none of the script.
#
# Torch comes first and alone. The CPU build that vLLM asks for is not on PyPI. pip tries the
# machine's own settings first, then PyTorch's index, so that no other package asks that index.
# The rest comes through uv, which needs a fifth of pip's time, or through pip where uv fails.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 lock=$2 what=${3:-}
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
torch=$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' "$lock")
packages=$(grep -c '^[a-z0-9]' "$lock")
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
bare=(--no-deps --no-compile)
say() { echo "setup: $*"; }

[ -x "$venv/bin/pip" ] || { say "making $venv"; "${PYTHON:-python3}" -m venv "$venv"; }

[ -z "$torch" ] || "$venv/bin/python" -c "
import importlib.metadata as m, sys
sys.exit(m.version('torch') != '${torch#torch==}')" 2>/dev/null || {
	say "installing $torch (about 200 MB)"
	"${pip[@]}" install -q "${bare[@]}" "$torch" 2>/dev/null ||
		"${pip[@]}" install "${bare[@]}" --index-url "$torch_index" "$torch" || {
		say "$torch was found neither by pip's own settings nor at $torch_index"
		say "name a mirror of that index: TORCH_INDEX=https://... make setup"
		exit 1
	}
}

# uv does not read pip's settings: it is told the index and the certificates that pip uses.
index=${PIP_INDEX_URL:-$("${pip[@]}" config get global.index-url 2>/dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
export VIRTUAL_ENV="$PWD/$venv" UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-60}
[[ $venv != /* ]] || export VIRTUAL_ENV="$venv"
quiet=-q
[ ! -t 2 ] || quiet=

say "installing $packages locked packages from $lock${what:+, for $what}"
[ -x "$venv/bin/uv" ] || "${pip[@]}" install -q "${bare[@]}" uv || true
rest=$(mktemp)
trap 'rm -f "$rest"' EXIT
grep -v '^torch==' "$lock" >"$rest"
with_uv() { "$venv/bin/uv" pip install $quiet --no-deps -r "$rest" -e .; }
with_pip() { "${pip[@]}" install -q "${bare[@]}" -r "$rest" -e .; }
if [ -n "$what" ]; then
	log=$venv/$(basename "$lock" .txt).log
	{ with_uv || with_pip; } >"$log" 2>&1 || {
		say "$what are left out, since they were not built: see $log; all else works"
		say "they need a C++ compiler and make; then: requirements/install.sh $venv $lock"
		exit 0
	}
else
	with_uv || {
		say "uv cannot install here: trying pip, which takes some minutes"
		with_pip
	}
fi

# Python would compile a module at its first import, and at each one where it may not write files
# (PYTHONDONTWRITEBYTECODE, or a user without the right): a start then takes twice the time.
say "compiling to bytecode"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m compileall -qq -j 0 -x '/tests?/' "$site" src/caesura src/caesura/*/ || true
