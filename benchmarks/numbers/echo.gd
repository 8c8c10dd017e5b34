# Shows its action as its observation: --port=N. After an action that begins with ASKED it shows what is not finite, or
# its options as its info (numbers_on_the_way.py). Or numbers through Godot's own ways: --way=WAY --in=FILE --out=FILE; how
# each that is not finite was written is printed.
extends SceneTree


class Echo:
	var shown = []
	var reward = 0.0
	var options = {}
	var info = {}

	func rl_reset(_seed: int) -> void:
		shown = []
		for _i in 1000:
			shown.append(0.0)

	func rl_options(given: Dictionary) -> void:
		options = given

	func rl_apply(action: Array) -> void:
		shown = action
		reward = 0.0
		info = {}
		if abs(action[0] / 1e30 - 1.0) > 1e-6:
			return
		var what = int(action[1])
		var special = [NAN, INF, -INF][(what - 1) % 3]
		if what < 4:
			shown = action.duplicate()
			shown[0] = special
		elif what < 7:
			reward = special
		elif what < 10:
			info = {"x": special}
		else:
			info = options

	func rl_observe() -> Array:
		return shown

	func rl_result(_observation) -> Array:
		return [reward, false, false]

	func rl_info() -> Dictionary:
		return info


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
		var text = ""
		var refused = false
		match way:
			"to_json, parse_json":
				text = to_json([x])
				var back = parse_json(text)
				refused = not (back is Array and back[0] is float)
				y = NAN if refused else back[0]
			"str, float":
				text = str(x)
				y = float(text)
			"var2str, str2var":
				text = var2str(x)
				var back = str2var(text)
				refused = not back is float
				y = NAN if refused else back
			"var2bytes":
				y = bytes2var(var2bytes(x))
		if is_nan(x) or is_inf(x):
			print("fate: " + text)
			if refused:
				print("refused: no number")
		out.store_double(y)
	out.close()
