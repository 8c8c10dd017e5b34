"""What the operating system, the compiler and the interpreter need: processes, forks, files, lazy imports."""
