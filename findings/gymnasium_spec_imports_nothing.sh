#!/usr/bin/env bash
# Gymnasium: gymnasium.make("module:Id-v0") imports the module, gymnasium.spec("module:Id-v0") does not.
#
# Guess: both take the same ids, so an id can be looked at before an env is made of it.
# Seen (gymnasium 1.1.0, 1.2.2 and 1.4.0): spec() raises NameNotFound for an id that make() turns into an env; after
#   make() has imported the module, spec() finds the id without the module's name alone.
# Here: `--env MODULE:ID` imports the module first, then asks.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
cat > "$work/my_envs.py" <<'PY'
import gymnasium

gymnasium.register("Mine-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
PY
cat > "$work/look.py" <<'PY'
import gymnasium


def of(name):
    try:
        return gymnasium.spec(name).id
    except gymnasium.error.Error as error:
        return type(error).__name__


before = of("my_envs:Mine-v0")
gymnasium.make("my_envs:Mine-v0").close()
seen = before, of("my_envs:Mine-v0"), of("Mine-v0")
print(f"gymnasium {gymnasium.__version__}: spec before make, behind it, without the module: {seen}")
assert seen == ("NameNotFound", "NameNotFound", "Mine-v0"), "this has changed"
PY
cd "$work"
for version in 1.1.0 1.2.2 1.4.0; do
  "$work/venv/bin/pip" install -q --disable-pip-version-check "gymnasium==$version"
  "$work/venv/bin/python" look.py
done
