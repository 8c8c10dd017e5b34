#!/usr/bin/env bash
# Mono: the format "R", for "round trip", writes some doubles as another number, and no minus before a zero.
#
# Guess: double.Parse(x.ToString("R")) == x for every double, which is what "R" is documented for; -0.0 is "-0".
# Seen (Mono 6.8.0.105 of Debian; Unity's scripting backend is of this family): 0.58640186236537994 becomes
#   "0.58640186236538", another double, and so do about four of three million numbers between -10 and 10; "G17" brings
#   all of them back, at 17 digits each. Both write -0.0 as "0", "-0" is read as +0.0, and "1e400" raises an
#   OverflowException, where newer .NET reads infinity.
# Here: UeRlBridge.cs writes and reads numbers by arithmetic of its own, so that a double that crosses from Unity to
#   Python, to a recording or to another engine is the same to the bit.
# Needs Debian's apt-get and its package lists; the packages are unpacked into the temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The packages and all that they need but the C library, as for a machine on which nothing is installed.
touch nothing-installed
apt-get install -s --no-install-recommends -o Dir::State::status="$work/nothing-installed" \
  mono-mcs=6.8.0.105+dfsg-3.3+deb12u1 mono-runtime=6.8.0.105+dfsg-3.3+deb12u1 |
  sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -vx -e libc6 -e libc-bin -e base-files > packages
xargs apt-get download -q < packages > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$(find "$work/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH MONO_PATH=$work/root/usr/lib/mono/4.5 MONO_CFG_DIR=$work/root/etc MONO_DISABLE_SHARED_AREA=1
mono=$work/root/usr/bin/mono-sgen
cat > Numbers.cs <<'CS'
using System;
using System.Globalization;

class Numbers
{
    static readonly CultureInfo Plain = CultureInfo.InvariantCulture;

    static bool ComesBack(double value, string format)
    {
        return double.Parse(value.ToString(format, Plain), Plain) == value;
    }

    static void Main()
    {
        double lost = BitConverter.Int64BitsToDouble(0x3fe2c3cdd6a58794);
        Console.WriteLine("R " + lost.ToString("R", Plain) + " " + ComesBack(lost, "R"));
        Console.WriteLine("G17 " + lost.ToString("G17", Plain) + " " + ComesBack(lost, "G17"));
        var draws = new Random(1);
        int ofR = 0, ofG17 = 0;
        for (int n = 0; n < 3000000; n++)
        {
            double value = (draws.NextDouble() - 0.5) * 20;
            if (!ComesBack(value, "R")) ofR++;
            if (!ComesBack(value, "G17")) ofG17++;
        }
        Console.WriteLine("other numbers " + ofR + " " + ofG17);
        Console.WriteLine("zero " + (-0.0).ToString("R", Plain) + " " + (-0.0).ToString("G17", Plain) + " "
            + 1 / double.Parse("-0", Plain));
        try
        {
            Console.WriteLine("1e400 " + double.Parse("1e400", Plain));
        }
        catch (OverflowException)
        {
            Console.WriteLine("1e400 OverflowException");
        }
    }
}
CS
"$mono" "$MONO_PATH/mcs.exe" Numbers.cs
"$mono" Numbers.exe | tee out
diff - out <<'EXPECTED' || { echo "this has changed"; exit 1; }
R 0.58640186236538 False
G17 0.58640186236537994 True
other numbers 4 0
zero 0 0 Infinity
1e400 OverflowException
EXPECTED
