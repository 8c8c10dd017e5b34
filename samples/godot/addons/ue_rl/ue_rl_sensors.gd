# What an agent sees, as numbers of its observation: rays, a grid, and the last few observations.
#
#     const Sensors = preload("res://addons/ue_rl/ue_rl_sensors.gd")
#     var rays = Sensors.Rays.new(7, 2.0, 10.0, ["wall", "ball"])
#     var eye = Sensors.Eye.new(get_world().direct_space_state)
#     ...
#     eye.from = global_transform
#     return rays.read(eye) + [speed]      # in rl_observe; rays.names() are for observation_names
#
# A sensor asks an eye what a ray meets or what lies in a cell. Eye looks into 3D physics; any object with
#     cast(angle: float, length: float, tags: Array) -> Array  # [distance, tag]; length or more: nothing; -1: no tag
#     look(forward: float, left: float, cell: float, tags: Array) -> int   # bit k: tag k is there
# will do. Angles are radians from where the agent looks, positive to its left. The same sensors are in samples/cpp
# and samples/unity; all give the same numbers (tests/samples/test_sensors.py).
extends Reference


# A fan of rays from right to left. Each gives a flag for each tag, and distance / length, where 1 is nothing.
class Rays:
	extends Reference

	var rays
	var spread
	var length
	var tags

	# `of_spread`: radians from the first ray to the last; TAU or more: a full circle, from straight ahead to the left.
	func _init(of_rays: int, of_spread: float, of_length: float, of_tags: Array) -> void:
		rays = of_rays
		spread = of_spread
		length = of_length
		tags = of_tags

	func size() -> int:
		return rays * (tags.size() + 1)

	func names() -> Array:
		var all = []
		for ray in rays:
			for name in tags + ["distance"]:
				all.append("ray[%d]/%s" % [ray, name])
		return all

	func angle(ray: int) -> float:
		if spread >= TAU:
			return ray * (TAU / rays)
		return ray * (spread / (rays - 1)) - spread / 2.0 if rays > 1 else 0.0

	func read(eye) -> Array:
		var row = []
		for ray in rays:
			var hit = eye.cast(angle(ray), length, tags)
			var met = hit[0] < length
			for tag in tags.size():
				row.append(1.0 if met and hit[1] == tag else 0.0)
			var distance = hit[0] if hit[0] > 0.0 else 0.0  # max() would round it to float32
			row.append(distance / length if met else 1.0)
		return row


# Square cells around the agent, row by row from behind it, in a row from right to left: a flag for each tag.
class Grid:
	extends Reference

	var rows
	var columns
	var cell
	var tags

	func _init(of_rows: int, of_columns: int, of_cell: float, of_tags: Array) -> void:  # 32 tags at most
		rows = of_rows
		columns = of_columns
		cell = of_cell
		tags = of_tags

	func size() -> int:
		return rows * columns * tags.size()

	func names() -> Array:
		var all = []
		for row in rows:
			for column in columns:
				for name in tags:
					all.append("cell[%d][%d]/%s" % [row, column, name])
		return all

	func read(eye) -> Array:
		var row = []
		for i in rows:
			for k in columns:
				var bits = eye.look((i - (rows - 1) / 2.0) * cell, (k - (columns - 1) / 2.0) * cell, cell, tags)
				for tag in tags.size():
					row.append(float(bits >> tag & 1))
		return row


# The last `of_depth` observations of one agent, the oldest first; before the episode began they are zeros.
class Stack:
	extends Reference

	var _names
	var _depth
	var _kept = []

	func _init(of_names: Array, of_depth: int) -> void:
		_names = of_names
		_depth = of_depth
		clear()

	func size() -> int:
		return _depth * _names.size()

	func names() -> Array:
		var all = []
		for i in _depth:
			for name in _names:
				all.append("%s[%d]" % [name, i - _depth + 1])
		return all

	# An episode begins.
	func clear() -> void:
		_kept = []
		for _i in size():
			_kept.append(0.0)

	# Once for each observation: `numbers` is the newest.
	func read(numbers: Array) -> Array:
		_kept = _kept.slice(numbers.size(), size() - 1) + numbers if _depth > 1 else numbers
		return _kept.duplicate()


# Looks into a space of 3D physics from where the agent is: forward is -z, left is -x. A body has a tag where it is in
# the group of that name. The agent's own body belongs into `skip`, or on a layer outside `mask`.
class Eye:
	extends Reference

	var from = Transform()
	var _space
	var _mask
	var _skip

	func _init(space, mask = 0x7FFFFFFF, skip = []) -> void:
		_space = space
		_mask = mask
		_skip = skip

	func cast(angle: float, length: float, tags: Array) -> Array:
		var way = -from.basis.z * cos(angle) - from.basis.x * sin(angle)
		var hit = _space.intersect_ray(from.origin, from.origin + way * length, _skip, _mask)
		if hit.empty():
			return [length, -1]
		for tag in tags.size():
			if hit.collider.is_in_group(tags[tag]):
				return [from.origin.distance_to(hit.position), tag]
		return [from.origin.distance_to(hit.position), -1]

	func look(forward: float, left: float, cell: float, tags: Array) -> int:
		var box = BoxShape.new()
		box.extents = Vector3(0.5, 0.5, 0.5) * cell
		var query = PhysicsShapeQueryParameters.new()
		query.set_shape(box)
		query.transform = Transform(from.basis, from.origin - from.basis.z * forward - from.basis.x * left)
		query.collision_mask = _mask
		query.exclude = _skip
		var bits = 0
		for found in _space.intersect_shape(query):
			for tag in tags.size():
				if found.collider.is_in_group(tags[tag]):
					bits |= 1 << tag
		return bits
