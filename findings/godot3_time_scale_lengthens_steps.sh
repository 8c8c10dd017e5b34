#!/usr/bin/env bash
# Godot 3: Engine.time_scale makes no more physics steps, it makes each of them longer.
#
# Guess: Engine.time_scale = 8 plays the same game eight times as fast: eight times as many steps of 1/60 s.
# Seen (Godot 3.2.3, Debian's godot3-server): at a scale of 8 a second of the game has 8 steps of 0.133 s instead of 60 of
#   0.017 s, and a ball that a wall stops at scale 1 flies through it. With iterations_per_second = 480 as well there are
#   60 steps of 0.017 s again, and the wall stops it. So what learnt with the scale alone has learnt another game.
# Here: set_time_scale of the Godot bridge sets both.
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
mkdir project
printf 'config_version=4\n' > project/project.godot
cat > project/wall.gd <<'GD'
extends SceneTree

var ball = RigidBody2D.new()
var steps = 0
var seconds = 0.0

func _init():
	Engine.time_scale = float(OS.get_environment("SCALE"))
	Engine.iterations_per_second = int(OS.get_environment("STEPS"))
	var round_shape = CircleShape2D.new()
	round_shape.radius = 8
	ball.gravity_scale = 0
	ball.linear_velocity = Vector2(600, 0)
	var wall = StaticBody2D.new()
	var flat_shape = RectangleShape2D.new()
	flat_shape.extents = Vector2(8, 200)
	wall.position = Vector2(300, 0)
	put(ball, round_shape)
	put(wall, flat_shape)

func put(body, shape):
	var collision = CollisionShape2D.new()
	collision.shape = shape
	body.add_child(collision)
	get_root().add_child(body)

func _iteration(delta):
	steps += 1
	seconds += delta
	if seconds > 0.999:
		print("seen ", [steps, stepify(delta, 0.001), ball.position.x < 300])
		quit()
		seconds = -INF
GD
run() { # SCALE STEPS: [steps in a second of the game, the length of one, did the wall stop the ball?]
  HOME=$work SCALE=$1 STEPS=$2 timeout 60 "$work/root/usr/bin/godot3-server" --path project -s wall.gd 2> /dev/null
}
for settings in "1 60" "8 60" "8 480"; do
  # shellcheck disable=SC2086 # two words
  run $settings | tee -a out | sed -n "s/^seen /scale and steps a second $settings: /p"
done
expected='seen [60, 0.017, True]
seen [8, 0.133, False]
seen [60, 0.017, True]'
grep -qF "v3.2.3.stable" out && [[ $(grep '^seen' out) == "$expected" ]] || { echo "this has changed; expected: $expected"; exit 1; }
