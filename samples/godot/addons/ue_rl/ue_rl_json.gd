# Infos as JSON. Godot 3's own writer keeps six decimals, so that 4e-7 would arrive as 0, writes infinities, which JSON
# does not have, and leaves control characters in texts as they are.
extends Reference

const Double = preload("ue_rl_double.gd")
const Text = preload("ue_rl_text.gd")

var _warned = {}  # keys of values that were left out


# A Dictionary as a JSON object. Numbers keep all their digits; vectors become lists. A value that holds NaN or infinity
# is left out with its key, and a warning says so once.
func object(values: Dictionary) -> String:
	var pairs = PoolStringArray()
	for key in values:
		var text = _text(values[key])
		if text != "":
			pairs.append(_quoted(str(key)) + ":" + text)
		elif not _warned.has(key):
			_warned[key] = true
			var why = "it holds NaN or infinity, which JSON cannot carry"
			printerr("ue_rl: the info \"%s\" is left out: %s" % [key, why])
	return "{" + pairs.join(",") + "}"


# `value` as JSON, "" where it holds a number that is not finite.
func _text(value) -> String:
	match typeof(value):
		TYPE_NIL:
			return "null"
		TYPE_BOOL:
			return "true" if value else "false"
		TYPE_INT:
			return str(value)
		TYPE_REAL:
			return "" if is_nan(value) or is_inf(value) else Double.text(value)
		TYPE_STRING:
			return _quoted(value)
		TYPE_DICTIONARY:
			var pairs = PoolStringArray()
			for key in value:
				var text = _text(value[key])
				if text == "":
					return ""
				pairs.append(_quoted(str(key)) + ":" + text)
			return "{" + pairs.join(",") + "}"
		TYPE_VECTOR2:
			return _float32s([value.x, value.y])
		TYPE_VECTOR3:
			return _float32s([value.x, value.y, value.z])
		TYPE_REAL_ARRAY:
			return _float32s(value)
		TYPE_ARRAY, TYPE_INT_ARRAY, TYPE_STRING_ARRAY, TYPE_RAW_ARRAY, TYPE_VECTOR2_ARRAY, TYPE_VECTOR3_ARRAY:
			var texts = PoolStringArray()
			for item in value:
				var text = _text(item)
				if text == "":
					return ""
				texts.append(text)
			return "[" + texts.join(",") + "]"
	return _quoted(str(value))


# A float32 as a double has many more digits than it knows.
func _float32s(numbers) -> String:
	var texts = PoolStringArray()
	for number in numbers:
		if is_nan(number) or is_inf(number):
			return ""
		texts.append(Text.number(number))
	return "[" + texts.join(",") + "]"


func _quoted(text: String) -> String:
	var quoted = ""
	for c in text:
		if c == '"' or c == "\\":
			quoted += "\\" + c
		elif ord(c) < 32:
			quoted += "\\u%04x" % ord(c)
		else:
			quoted += c
	return '"' + quoted + '"'
