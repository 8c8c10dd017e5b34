/* What CPython's headers ask of a compiler's pyconfig.h, answered for 64-bit Windows with MinGW: enough to compile the
   extension modules, not to link them. CPython's own for Windows, PC/pyconfig.h of its sources, is made for MSVC. */
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#define MS_WIN64
#define MS_WINDOWS
#define MS_WIN32
#define NT_THREADS
#define WITH_THREAD
#define HAVE_DYNAMIC_LOADING
#define Py_ENABLE_SHARED
#define MS_COREDLL

#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_SIZE_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_OFF_T 4
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 4
#define SIZEOF_HKEY 8
#define SIZEOF_FPOS_T 8
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_MAX_ALIGN_T 8

#define HAVE_STDARG_PROTOTYPES
#define STDC_HEADERS 1
#define HAVE_ERRNO_H 1
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_PROTOTYPES 1
#define HAVE_COPYSIGN 1
#define HAVE_ROUND 1
#define HAVE_HYPOT 1
#define HAVE_DECL_ISINF 1
#define HAVE_DECL_ISNAN 1
#define HAVE_DECL_ISFINITE 1
#define HAVE_SSIZE_T 1
#define PY_SSIZE_T_MAX LLONG_MAX
#define PLATFORM "win32"
#define _Py_COMPILER "MinGW"

#endif
