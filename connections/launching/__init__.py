"""Starting engines: their commands, processes, ports and output."""
