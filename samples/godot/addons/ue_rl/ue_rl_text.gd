# Numbers and values as the protocol writes them (doubles: ue_rl_double.gd). Godot 3's own functions are no help: str() keeps six digits,
# is_valid_float() takes "1e" and refuses "1E0", float() ends the process on a power of 2^31 and reads others modulo
# 2^32, int() makes another number of 2^63.
extends Reference

const MAX_FLOAT32 = 3.4028235e38
const MAX_INTEGER = "9223372036854775807"  # 2^63 - 1
const POWERS = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16]
const FORMATS = ["%.0f", "%.1f", "%.2f", "%.3f", "%.4f", "%.5f", "%.6f", "%.7f", "%.8f"]


# The shortest text that reads back as the same float32. A whole number of up to 53 bits divided by a power of ten that
# is exact rounds once, so the quotient is what a reader makes of the text; a Vector2 holds float32.
static func number(x: float) -> String:
	var rounded = Vector2(x, 0.0).x
	var size = abs(rounded)
	if size < 0.001 or size >= 1e5 or is_nan(x):
		return _far_number(rounded, size)
	if int(size) == size:
		return str(int(rounded))
	# For eight digits: what is left of the point takes some away, zeros right of it give some.
	var places = 8
	if size >= 1.0:
		places = 7 if size < 10.0 else 6 if size < 100.0 else 5 if size < 1000.0 else 4 if size < 10000.0 else 3
	elif size < 0.1:
		places = 9 if size >= 0.01 else 10
	var whole = round(size * POWERS[places])
	if Vector2(whole / POWERS[places], 0.0).x != size:
		places += 1  # nine are always enough
		whole = round(size * POWERS[places])
	var text = ""
	var fewer = round(size * POWERS[places - 1])
	if Vector2(fewer / POWERS[places - 1], 0.0).x == size:
		places -= 1
		whole = fewer
		fewer = round(size * POWERS[places - 1])
		if Vector2(fewer / POWERS[places - 1], 0.0).x == size:
			# Six digits survive in a float32: fewer are these without the zeros at the end.
			places -= 1
			text = str(int(fewer)).pad_zeros(places + 1)
			text = text.insert(text.length() - places, ".").rstrip("0").rstrip(".")
	if text == "":
		text = str(int(whole))
		if places < text.length():
			text = text.insert(text.length() - places, ".")
		else:
			text = "0." + text.pad_zeros(places)
	return "-" + text if rounded < 0.0 else text


static func _far_number(rounded: float, size: float) -> String:
	if size == 0.0:
		return "-0.0" if atan2(rounded, -1.0) < 0.0 else "0"  # a reader of JSON takes -0 for a whole number
	if is_nan(size) or is_inf(size):
		return "nan" if is_nan(size) else ("-inf" if rounded < 0.0 else "inf")
	var power = int(floor(log(size) / log(10.0)))
	# In two steps: 10^-45 itself is hardly a number.
	var mantissa = rounded / pow(10.0, power) if power > -30 else rounded * 1e30 / pow(10.0, power + 30)
	var text = ""
	for digits in range(5, 9):
		text = (FORMATS[digits] % mantissa).rstrip("0").rstrip(".") + "e" + str(power)
		if Vector2(float(text), 0.0).x == rounded:
			break
	return text


# The number in `text` as a float32 can hold it, null where it is none: what an action is.
static func read_number(text: String):
	var at = text.findn("e")
	if at < 0:
		return float(text) if text.is_valid_float() else null
	var mantissa = text.left(at)
	var power = text.substr(at + 1)
	if not mantissa.is_valid_float() or not power.is_valid_integer():
		return null
	var sign_of_power = "-" if power.begins_with("-") else ""
	# Nine digits of a power are as good as more.
	var number = float(mantissa + "e" + sign_of_power + "0" + power.lstrip("+-0").left(9))
	return 0.0 if is_nan(number) else number  # Godot's 0e999 is zero times infinity


# The whole number in `text`, null where it is none, -1 where it is greater than 2^63 - 1.
static func read_integer(text: String):
	if not text.is_valid_integer() or text.begins_with("-") or text.begins_with("+"):
		return null
	var digits = text.lstrip("0")
	var longer = digits.length() - MAX_INTEGER.length()
	if longer > 0 or (longer == 0 and digits > MAX_INTEGER):
		return -1
	return int(digits)


# Comma-separated names, percent-encoded but for what may stand in a name.
static func names(list) -> String:
	var texts = PoolStringArray()
	for name in list:
		var text = name.percent_encode()
		for kept in ["/", "[", "]", "^", "*"]:
			text = text.replace("%" + ("%x" % ord(kept)), kept)
		texts.append(text)
	return texts.join(",")
