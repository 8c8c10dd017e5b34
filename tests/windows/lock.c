/* lock FILE OFFSET COUNT: takes the lock of a port as ue_rl/connections/launching/ports.py does on Windows, in the same
 * order: opens the file to append, seeks, locks, empties it and writes who holds it. Says whether it has the lock, and
 * holds it until its standard input ends. OFFSET -1: it does not seek. */
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/locking.h>
#include <sys/stat.h>

int main(int count, char **words)
{
    char text[32];
    int file, length;
    if (count != 4) return 2;
    file = _open(words[1], _O_WRONLY | _O_CREAT | _O_APPEND | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    if (file < 0) return 3;
    _lseeki64(file, 0, SEEK_END); /* as Python, which opens for "ab" */
    if (words[2][0] != '-') _lseeki64(file, _atoi64(words[2]), SEEK_SET);
    if (_locking(file, _LK_NBLCK, atol(words[3]))) {
        puts("refused");
        return 0;
    }
    if (_chsize_s(file, 0)) return 4;
    length = snprintf(text, sizeof text, "%d", _getpid());
    if (_write(file, text, (unsigned)length) != length) return 5;
    puts("held");
    fflush(stdout);
    while (getchar() != EOF) continue;
    return 0;
}
