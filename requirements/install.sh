#!/usr/bin/env bash
# Installs one lock into one virtual environment, and says what it does:
#   requirements/install.sh VENV LOCK
#
# Torch comes first and alone. The CPU build that vLLM asks for is not on PyPI. pip tries the
# machine's own settings first, then PyTorch's index, so that no other package asks that index.
# The rest comes through uv, which needs a fifth of pip's time, or through pip where uv fails.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 lock=$2
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
torch=$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' "$lock")
packages=$(grep -c '^[a-z0-9]' "$lock")
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
bare=(--no-deps --no-compile)
say() { echo "setup: $*"; }

[ -x "$venv/bin/pip" ] || { say "making $venv"; "${PYTHON:-python3}" -m venv "$venv"; }

"$venv/bin/python" -c "
import importlib.metadata as m, sys
sys.exit(m.version('torch') != '${torch#torch==}')" 2>/dev/null || {
	say "installing $torch (about 200 MB)"
	"${pip[@]}" install -q "${bare[@]}" "$torch" 2>/dev/null ||
		"${pip[@]}" install "${bare[@]}" --index-url "$torch_index" "$torch"
}

# uv does not read pip's settings: it is told the index and the certificates that pip uses.
index=${PIP_INDEX_URL:-$("${pip[@]}" config get global.index-url 2>/dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
export VIRTUAL_ENV="$PWD/$venv" UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-60}
[[ $venv != /* ]] || export VIRTUAL_ENV="$venv"
quiet=-q
[ ! -t 2 ] || quiet=

say "installing $packages locked packages from $lock"
[ -x "$venv/bin/uv" ] || "${pip[@]}" install -q "${bare[@]}" uv || true
rest=$(mktemp)
trap 'rm -f "$rest"' EXIT
grep -v '^torch==' "$lock" >"$rest"
"$venv/bin/uv" pip install $quiet --no-deps -r "$rest" -e . || {
	say "uv cannot install here: trying pip, which takes some minutes"
	"${pip[@]}" install -q "${bare[@]}" -r "$rest" -e .
}
