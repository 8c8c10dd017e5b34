# One connection of the bridge: lines in, lines out. Nothing here ever waits for the other side.
extends Reference

const CHUNK = 65536  # bytes taken at once; what else has come waits in the system, which then slows its sender

var peer: StreamPeerTCP
var host = ""
var blank = false  # an empty line has come: how a trainer says which connections it means, before it asks anything
var _text = ""
var _searched = 0  # so many characters of _text hold no newline
var _unsent = []  # PoolByteArrays that the system did not take yet
var _unsent_size = 0
var _nonce = ""
var _asked_at = 0


func _init(accepted: StreamPeerTCP) -> void:
	peer = accepted
	host = accepted.get_connected_host()
	accepted.set_no_delay(true)  # else Nagle's algorithm may hold an answer back for 40 ms


# The next line, or null while there is none; empty lines are skipped. More is taken from the socket only where no
# whole line is left over. What can never become a request comes back as a line that is refused: bytes that are no
# ASCII or a NUL, which would end a String early, and a line that is too long.
func read_line(limit: int):
	var end = _text.find("\n", _searched)
	if end < 0:
		var count = int(min(peer.get_available_bytes(), CHUNK))
		if count > 0:
			var chunk = peer.get_data(count)[1].get_string_from_utf8()
			if chunk.length() != count:
				return "(bytes that are no text)"
			_searched = _text.length()
			_text = _text + chunk if _searched > 0 else _stripped(chunk)
			end = _text.find("\n", _searched)
	if (_text.length() if end < 0 else end) > limit:
		return "(no newline within %d bytes)" % limit
	if end < 0:
		_searched = _text.length()
		return null
	var line = _text.left(end)
	_text = _stripped(_text.substr(end + 1))
	_searched = 0
	return line


func _stripped(text: String) -> String:
	blank = blank or text.begins_with("\n") or text.begins_with("\r\n")
	return text.lstrip(" \t\r\n")


# Sends a line, now or in a later flush(); false: the connection has failed, or more than `limit` bytes wait.
func send(line: String, limit: int) -> bool:
	var data = (line + "\n").to_ascii()
	_unsent.append(data)
	_unsent_size += data.size()
	return flush() and _unsent_size <= limit


# Gives the system what it takes; false: the connection has failed.
func flush() -> bool:
	while not _unsent.empty():
		var data = _unsent[0]
		var result = peer.put_partial_data(data)
		if result[0] != OK:
			return false
		_unsent_size -= result[1]
		if result[1] < data.size():
			_unsent[0] = data.subarray(result[1], data.size() - 1)
			return true
		_unsent.pop_front()
	return true


# The end of a connection shows only where nothing is left to read.
func discard() -> void:
	var _bytes = peer.get_data(int(min(peer.get_available_bytes(), CHUNK)))


# Has it sent what was not yet looked at?
func has_news() -> bool:
	return peer.get_available_bytes() > 0


func alive() -> bool:
	return peer.get_status() == StreamPeerTCP.STATUS_CONNECTED


func close() -> void:
	if alive():
		discard()  # what is unread at the end makes the system throw away what was sent last, too
	peer.disconnect_from_host()


# -- tokens: docs/protocol.md, section 3


func ask(now: int) -> void:
	_nonce = Crypto.new().generate_random_bytes(32).hex_encode()
	_asked_at = now
	var _sent = send("AUTH=" + _nonce, CHUNK)


# "": not yet; "AUTH": it knows the token, and was told that this side does; else why it is refused.
func proved(token: PoolByteArray, now: int) -> String:
	var line = read_line(160)
	if line == null:
		return "" if alive() and now - _asked_at < 5000000 else "it did not prove that it knows the token"
	var parts = line.strip_edges().trim_prefix("AUTH=").split(",")
	if parts.size() != 2 or parts[0].length() != 64 or parts[1].empty():
		return "it has given no token"
	var said = "%s:%s" % [_nonce, parts[0]]
	var right = _proof(token, "trainer:" + said)
	var differs = parts[1].length() - right.length()
	for i in right.length():
		differs = differs | (right.ord_at(i) ^ parts[1].ord_at(min(i, parts[1].length() - 1)))
	if differs != 0:
		return "its token is wrong"
	return "AUTH" if send("AUTH=" + _proof(token, "engine:" + said), CHUNK) else "it has gone"


# HMAC-SHA256 in hexadecimal digits; Godot has one of its own from 3.3 on.
func _proof(token: PoolByteArray, text: String) -> String:
	var key = token if token.size() <= 64 else _sha256(token)
	var inner = PoolByteArray()
	var outer = PoolByteArray()
	for i in 64:
		var byte = key[i] if i < key.size() else 0
		inner.append(byte ^ 0x36)
		outer.append(byte ^ 0x5c)
	inner.append_array(text.to_ascii())
	outer.append_array(_sha256(inner))
	return _sha256(outer).hex_encode()


func _sha256(bytes: PoolByteArray) -> PoolByteArray:
	var context = HashingContext.new()
	var _started = context.start(HashingContext.HASH_SHA256)
	var _fed = context.update(bytes)
	return context.finish()
