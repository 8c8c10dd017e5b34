# Answers the calls beside the steps, and keeps the values of the parameters.
extends Reference

const Double = preload("ue_rl_double.gd")
const Text = preload("ue_rl_text.gd")

var _bridge: Node
var _envs = []
var _grammar = null
var _values = []  # of the parameters, for each env
var _encoded = {}  # their names as the wire has them


func _init(bridge: Node, envs: Array, grammar) -> void:
	_bridge = bridge
	_envs = envs
	_grammar = grammar
	for name in grammar.parameters:
		_encoded[name] = Text.names([name])
	for _env in envs:
		var values = {}
		for name in grammar.parameters:
			values[name] = grammar.parameters[name][0]
		_values.append(values)


# The value of PARAMS in the handshake.
func describe() -> String:
	var described = PoolStringArray()
	for name in _encoded:
		var texts = PoolStringArray([_encoded[name]])
		for x in _grammar.parameters[name]:
			texts.append(Double.text(x))
		described.append(texts.join(":"))
	return described.join(",")


# The answer to a call.
func answer(line: String) -> String:
	var call = _grammar.fields(line)
	var fault = call.get("fault", "")
	if fault == "" and call.get("ENV", 0) >= _envs.size():
		fault = "there is no such env"
	if fault != "":
		return _refused(fault)
	var envs = [call.ENV] if call.has("ENV") else range(_envs.size())
	if call.has("GET") and not _encoded.empty():
		var names = _encoded.keys()
		if call.GET != null:
			names = []
			for name in call.GET.split(","):
				names.append(name.strip_edges().percent_decode())
		return _values_of(envs[0], names)
	if call.get("SET") != null and not _encoded.empty():
		var settings = _grammar.settings(call.SET)
		if settings is String:
			return _refused(settings)
		set_values(settings, envs)
		return _values_of(envs[0], settings.keys())
	if call.get("TIME_SCALE") != null:
		var scale = Double.read(call.TIME_SCALE)
		fault = "the time scale is no number" if scale == null else _bridge.scale_time(scale)
		return "OK" if fault == "" else _refused(fault)
	if call.get("PAUSE", "") in ["0", "1"]:
		_bridge.halted = call.PAUSE == "1"
		return "OK"
	return _refused("this game cannot do that")


func set_values(settings: Dictionary, envs: Array) -> void:
	for env in envs:
		for name in settings:
			_values[env][name] = settings[name]
			if _envs[env].has_method("rl_set"):
				_envs[env].rl_set(name, settings[name])


func _values_of(env: int, names: Array) -> String:
	var texts = PoolStringArray()
	for name in names:
		if not _encoded.has(name):
			return _refused("there is no parameter " + name)
		texts.append(_encoded[name] + ":" + Double.text(_values[env][name]))
	return "VALUES=" + texts.join(",")


func _refused(why: String) -> String:
	return "REFUSED=" + why.percent_encode()
