// Asks `ue-rl policy-server` for actions. C# 7 or later, netstandard 2.1, no dependency; docs/policy-server.md.
using System;
using System.Globalization;
using System.IO;
using System.Net.Sockets;
using System.Text;

namespace UeRl
{
    /// <summary>
    /// A connection to the server; it belongs to one thread. What goes wrong comes as an IOException that says it, and
    /// the connection is closed: make a new one.
    /// </summary>
    public sealed class PolicyClient : IDisposable
    {
        private readonly Socket _socket = new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        private readonly int _obs, _act, _envs;
        private readonly string _server;
        private byte[] _received = new byte[65536];
        private int _count;

        /// <param name="envs">How many envs (or characters) are asked for at once.</param>
        /// <param name="timeout">Milliseconds that the server may be silent.</param>
        /// <param name="more">Further fields of the hello, such as ";ACT_SPACE=DISCRETE(3)", to be checked.</param>
        public PolicyClient(string host, int port, int obs, int act, int envs = 1, int timeout = 5000, string more = "")
        {
            (_obs, _act, _envs, _server) = (obs, act, envs, host + ":" + port);
            _socket.SendTimeout = _socket.ReceiveTimeout = timeout;
            try
            {
                if (!_socket.ConnectAsync(host, port).Wait(timeout)) throw Failed("does not answer");
            }
            catch (AggregateException error)
            {
                throw Failed("does not listen: is ue-rl policy-server running there?", error.GetBaseException());
            }
            string several = envs > 1 ? ";ENV_TYPE=MULTI;ENV_COUNT=" + envs : "";
            Send("CONFIG:OBS=" + obs + ";ACT=" + act + several + more + "\n");
        }

        /// <summary>The actions [envs * act] for observations [envs * obs], one env after the other.</summary>
        /// <param name="begins">Where an episode begins, which a recurrent model must be told; null: nowhere.</param>
        public void Act(float[] observations, float[] actions, bool[] begins = null)
        {
            if (observations.Length != _envs * _obs || actions.Length != _envs * _act)
                throw new ArgumentException(observations.Length + " observation and " + actions.Length
                    + " action numbers are not those of " + _envs + " envs with " + _obs + " and " + _act);
            var line = new StringBuilder();
            for (int env = 0; env < _envs; env++)
            {
                for (int i = 0; i < _obs; i++) // nine digits are a float32, exactly
                    line.Append(i > 0 ? "," : env > 0 ? "||OBS=" : "OBS=")
                        .Append(observations[env * _obs + i].ToString("G9", CultureInfo.InvariantCulture));
                if (_envs > 1) line.Append(";ENV=").Append(env);
                if (begins != null && begins[env]) line.Append(";RESET=1");
            }
            Send(line.Append('\n').ToString());
            string answer = ReadLine();
            if (answer.StartsWith("ERROR=", StringComparison.Ordinal)) throw Failed("refuses: " + answer.Substring(6));
            if (!Read(answer, actions)) throw Failed("answers what are no actions: " + answer);
        }

        public void Dispose() { _socket.Dispose(); }

        // ACT=1,2;ENV=0||ACT=3,4;ENV=1: in the order in which the envs were asked
        private bool Read(string answer, float[] actions)
        {
            string[] rows = answer.Split(new[] { "||" }, StringSplitOptions.None);
            for (int env = 0; env < rows.Length; env++)
            {
                string behind = _envs > 1 ? ";ENV=" + env : "";
                if (!rows[env].StartsWith("ACT=", StringComparison.Ordinal)
                    || !rows[env].EndsWith(behind, StringComparison.Ordinal)) return false;
                string[] numbers = rows[env].Substring(4, rows[env].Length - 4 - behind.Length).Split(',');
                if (rows.Length != _envs || numbers.Length != _act) return false;
                for (int i = 0; i < _act; i++)
                {
                    float number;
                    if (!float.TryParse(numbers[i], NumberStyles.Float, CultureInfo.InvariantCulture, out number)
                        || float.IsNaN(number) || float.IsInfinity(number)) return false;
                    actions[env * _act + i] = number;
                }
            }
            return true;
        }

        private void Send(string text)
        {
            byte[] bytes = Encoding.ASCII.GetBytes(text);
            try
            {
                for (int at = 0; at < bytes.Length;)
                    at += _socket.Send(bytes, at, bytes.Length - at, SocketFlags.None);
            }
            catch (SocketException error)
            {
                if (error.SocketErrorCode == SocketError.TimedOut) throw Failed("does not read what it is sent", error);
                // closed: the reason may be there to read
            }
            catch (ObjectDisposedException error)
            {
                throw Failed("is not connected", error);
            }
        }

        private string ReadLine()
        {
            for (int from = 0; ;)
            {
                int end = Array.IndexOf(_received, (byte)'\n', from, _count - from);
                if (end >= 0)
                {
                    string line = Encoding.ASCII.GetString(_received, 0, end);
                    _count -= end + 1;
                    Buffer.BlockCopy(_received, end + 1, _received, 0, _count);
                    return line;
                }
                from = _count;
                if (_count == _received.Length) Array.Resize(ref _received, 2 * _count);
                try
                {
                    int count = _socket.Receive(_received, _count, _received.Length - _count, SocketFlags.None);
                    if (count == 0) throw Failed("closed the connection");
                    _count += count;
                }
                catch (SocketException error)
                {
                    bool late = error.SocketErrorCode == SocketError.TimedOut
                        || error.SocketErrorCode == SocketError.WouldBlock;
                    throw Failed(late ? "has not answered in time" : "closed the connection", error);
                }
            }
        }

        private IOException Failed(string why, Exception cause = null)
        {
            _socket.Dispose();
            return new IOException("the policy server " + _server + " " + why, cause);
        }
    }
}
