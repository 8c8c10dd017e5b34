#!/usr/bin/env bash
# Godot 3: numbers of a script are doubles, but what reads, compares and writes them is not.
#
# Guess: GDScript's float is a double, so float("0.1") == 0.1, max(0.1, 0.05) == 0.1, and str2var(var2str(x)) == x.
# Seen (Godot 3.2.3, Debian's godot3-server): float() and String.to_float() give the float32 0.10000000149011612, and so
#   do max, min and clamp of doubles; to_json(4e-7) writes 0, since it keeps six decimals; str2var and JSON.parse give
#   another double for 123456789.12345679; every new RandomNumberGenerator draws the same numbers.
# Here: parameters, infos and demonstrations are read and written by arithmetic of our own (ue_rl_double.gd); a value
#   that is its own upper bound was refused before.
# Needs Debian's apt-get and its package lists; the packages are unpacked into the temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The package and all that it needs but the C library, as for a machine on which nothing is installed.
touch nothing-installed
apt-get install -s --no-install-recommends -o Dir::State::status="$work/nothing-installed" \
  godot3-server=3.2.3-stable-1+b3 | sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -vx -e libc6 -e libc-bin -e base-files > packages
xargs apt-get download -q < packages > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$(find "$work/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH
godot=$work/root/usr/bin/godot3-server
mkdir project
printf 'config_version=4\n' > project/project.godot
cat > project/numbers.gd <<'GD'
extends SceneTree

func _init():
	print("seen ", [
		float("0.1") == 0.1, "0.1".to_float() == 0.1, str2var("0.1") == 0.1,
		max(0.1, 0.05) == 0.1, min(0.1, 0.5) == 0.1, clamp(0.1, 0.0, 1.0) == 0.1, abs(-0.1) == 0.1,
		to_json(4e-7), str2var("123456789.12345679") == 123456789.0 + 8285045.0 / 67108864.0,
		RandomNumberGenerator.new().randi() == RandomNumberGenerator.new().randi()
	])
	quit()
GD
HOME=$work "$godot" --path project -s numbers.gd 2>/dev/null | grep -e Engine -e seen | tee out
expected='seen [False, False, True, False, False, False, True, 0, False, True]'
grep -qF "v3.2.3.stable" out && grep -qxF "$expected" out || { echo "this has changed; expected: $expected"; exit 1; }
