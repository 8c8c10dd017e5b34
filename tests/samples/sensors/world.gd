# world.cpp in Godot: run with godot3-server --path samples/godot -s THIS "--world=.." [--physics]. With --physics it
# looks with Sensors.Eye into Godot's physics, where the circles are spheres: x of the world is -z, y is -x.
extends SceneTree

const Sensors = preload("res://addons/ue_rl/ue_rl_sensors.gd")
const TAGS = ["wall", "ball"]


class Circles:
	var circles = []
	var x = 0.0
	var y = 0.0
	var heading = 0.0

	func cast(angle: float, length: float, _tags: Array) -> Array:
		var ahead = cos(heading + angle)
		var aside = sin(heading + angle)
		var hit = [length, -1]
		for c in circles:
			var along = (c[0] - x) * ahead + (c[1] - y) * aside
			var off = (c[1] - y) * ahead - (c[0] - x) * aside
			if along < 0.0 or abs(off) > c[2]:
				continue
			var distance = along - sqrt(c[2] * c[2] - off * off)
			if distance < hit[0]:
				hit = [distance, int(c[3])]
		return hit

	func look(forward: float, left: float, cell: float, _tags: Array) -> int:
		var bits = 0
		for c in circles:
			var ahead = (c[0] - x) * cos(heading) + (c[1] - y) * sin(heading)
			var aside = (c[1] - y) * cos(heading) - (c[0] - x) * sin(heading)
			var far = max(abs(ahead - forward) - cell / 2.0, 0.0)
			var wide = max(abs(aside - left) - cell / 2.0, 0.0)
			if far * far + wide * wide < c[2] * c[2]:
				bits |= 1 << int(c[3])
		return bits


var _given = []
var _world = Circles.new()
var _ticks = 0


func _initialize() -> void:
	for text in OS.get_cmdline_args():
		if text.begins_with("--world="):
			for word in text.substr(8).split(" "):
				_given.append(1.0 * str2var(word))  # float() would round it to float32
	var at = 9 + 3 * int(_given[7])
	for k in int(_given[at - 1]):
		var c = _given.slice(at + 4 * k, at + 4 * k + 3)
		_world.circles.append(c)
		var body = StaticBody.new()
		var shape = CollisionShape.new()
		shape.shape = SphereShape.new()
		shape.shape.radius = c[2]
		body.add_child(shape)
		body.translation = Vector3(-c[1], 0.0, -c[0])
		if c[3] < TAGS.size():
			body.add_to_group(TAGS[int(c[3])])
		root.add_child(body)


func _iteration(_delta: float) -> bool:
	_ticks += 1
	if _ticks == 2:  # the bodies are in the space
		_look()
		quit()
	return false


func _look() -> void:
	var eye = _world
	if "--physics" in OS.get_cmdline_args():
		eye = Sensors.Eye.new(root.world.direct_space_state)
	var rays = Sensors.Rays.new(int(_given[0]), _given[1], _given[2], TAGS)
	var grid = Sensors.Grid.new(int(_given[3]), int(_given[4]), _given[5], TAGS)
	var stack = Sensors.Stack.new(rays.names() + grid.names(), int(_given[6]))
	print("NAMES " + PoolStringArray(stack.names()).join(" "))
	for place in int(_given[7]):
		_world.x = _given[8 + 3 * place]
		_world.y = _given[9 + 3 * place]
		_world.heading = _given[10 + 3 * place]
		if eye != _world:
			eye.from = Transform(Basis(Vector3.UP, _world.heading), Vector3(-_world.y, 0.0, -_world.x))
		var seen = rays.read(eye)
		assert(seen.size() == rays.size())
		seen += grid.read(eye)
		var text = PoolStringArray()
		for number in stack.read(seen):
			text.append("%.9f" % number)
		print("ROW " + text.join(" "))
	stack.clear()
	print("CLEAR %s" % stack.read(rays.names() + grid.names())[0])
