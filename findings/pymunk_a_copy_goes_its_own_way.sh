#!/usr/bin/env bash
# Pymunk: a copied Space has the same bodies and goes another way.
#
# Guess: space.copy(), made for exactly this, holds the whole state: the copy goes on as the space does, and two spaces
#   that are built alike do, too.
# Seen (pymunk 7.3.1, Linux x86-64): two alike are the same for 300 steps. A copy of a heap of boxes has each position,
#   angle and velocity to the bit, and is more than 10 units away after 100 steps: contacts and what was found out for
#   them are not copied, and what is copied meets in another order.
# Here: exact resume plays an episode again from its seed and actions; a copy of a physics space is no such save.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  pymunk==7.3.1
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import pymunk


def heap(boxes):
    space = pymunk.Space()
    space.gravity = (0, -900)
    floor = pymunk.Segment(space.static_body, (-500, 0), (500, 0), 5)
    floor.friction = 1
    space.add(floor)
    for number in range(boxes):
        body = pymunk.Body(1, pymunk.moment_for_box(1, (20, 20)))
        body.position = (3 * number, 30 + 25 * number)
        box = pymunk.Poly.create_box(body, (20, 20))
        box.friction = 0.7
        space.add(body, box)
    return space


def state(space):
    return [(*body.position, body.angle, *body.velocity, body.angular_velocity) for body in space.bodies]


def after(space, steps):
    for _ in range(steps):
        space.step(1 / 60)
    return state(space)


def apart(first, second):
    return max(abs(one[0] - other[0]) for one, other in zip(after(first, 100), after(second, 100)))


space = heap(6)
after(space, 30)
copy = space.copy()
same = state(space) == state(copy)
alike = after(heap(6), 300) == after(heap(6), 300)
far = apart(space, copy)
print(f"pymunk {pymunk.version}: built alike the same: {alike}; copied the same: {same}, later {far:.2f} apart")
assert alike and same and far > 10, "this has changed"
PY
