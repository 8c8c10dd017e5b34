# Shows its action as its observation: --port=N. Or numbers through Godot's own ways: --way=WAY --in=FILE --out=FILE.
extends SceneTree


class Echo:
	var shown = []

	func rl_reset(_seed: int) -> void:
		for i in 1000:
			shown.append(0.0)

	func rl_apply(action: Array) -> void:
		shown = action

	func rl_observe() -> Array:
		return shown

	func rl_result(_observation) -> Array:
		return [0.0, false, false]


func _init() -> void:
	var given = {}
	for word in OS.get_cmdline_args():
		var parts = word.split("=")
		if len(parts) > 1:
			given[parts[0]] = word.substr(len(parts[0]) + 1)
	if given.has("--way"):
		_convert(given["--way"], given["--in"], given["--out"])
		quit()
		return
	var bridge = load("res://addons/ue_rl/ue_rl_bridge.gd").new()
	bridge.action_space = "BOX(-inf:inf)"
	for i in 200:
		bridge.parameters["p%d" % i] = [0.0, -INF, INF]
	root.add_child(bridge)
	bridge.start([Echo.new()], 1000, 1000)


func _convert(way: String, from: String, to: String) -> void:
	var source = File.new()
	var out = File.new()
	source.open(from, File.READ)
	out.open(to, File.WRITE)
	for _i in source.get_len() / 8:
		var x = source.get_double()
		var y = 0.0
		match way:
			"to_json, parse_json":
				y = parse_json(to_json([x]))[0]
			"str, float":
				y = float(str(x))
			"var2str, str2var":
				y = str2var(var2str(x))
			"var2bytes":
				y = bytes2var(var2bytes(x))
		out.store_double(y)
	out.close()
