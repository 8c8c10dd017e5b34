# Puts UeRlBridge into the editor's list of nodes. A game that makes the node in a script does not need it.
tool
extends EditorPlugin


func _enter_tree() -> void:
	add_custom_type("UeRlBridge", "Node", preload("ue_rl_bridge.gd"), null)


func _exit_tree() -> void:
	remove_custom_type("UeRlBridge")
