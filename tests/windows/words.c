/* words WORD ..: says its words, one a line. words: starts the command line that its standard input has. */
#include <stdio.h>
#include <string.h>
#include <windows.h>

static int start(char *line)
{
    STARTUPINFOA how = {.cb = sizeof how};
    PROCESS_INFORMATION made;
    DWORD code = 1;
    if (!CreateProcessA(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &how, &made)) return 1;
    WaitForSingleObject(made.hProcess, INFINITE);
    GetExitCodeProcess(made.hProcess, &code);
    return (int)code;
}

int main(int count, char **words)
{
    char line[4096];
    int i;
    if (count == 1) {
        if (!fgets(line, sizeof line, stdin)) return 1;
        line[strcspn(line, "\r\n")] = 0;
        return start(line);
    }
    for (i = 1; i < count; i++) printf("%s\n", words[i]);
    return 0;
}
