// policy_client.hpp: asks `ue-rl policy-server` for actions. C++17, no dependencies; protocol: docs/policy-server.md.
// Run on Linux; written for macOS and Windows, not run there. One object belongs to one thread.
#pragma once

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <winsock2.h>
#include <ws2tcpip.h>
#ifdef _MSC_VER
#pragma comment(lib, "ws2_32.lib")
#endif
#else
#include <arpa/inet.h>
#include <cerrno>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#endif

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace ue_rl {

// Nothing here throws. Where a call returns false, error() says why and the connection is closed: connect() again.
class PolicyClient {
public:
    PolicyClient() = default;
    PolicyClient(const PolicyClient&) = delete;
    PolicyClient& operator=(const PolicyClient&) = delete;
    ~PolicyClient() { close(); }
    const std::string& error() const { return error_; }

    // address: IPv4, such as 127.0.0.1. timeout_ms: how long the server may be silent. more: further fields of the
    // hello, such as ";ACT_SPACE=DISCRETE(3)", which the server compares with the model.
    bool connect(const std::string& address, int port, int obs_size, int act_size, int num_envs = 1,
                 int timeout_ms = 5000, const std::string& more = "") {
        close();
        obs_size_ = obs_size, act_size_ = act_size, num_envs_ = num_envs;
        server_ = address + ":" + std::to_string(port);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(port));
        if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return fail("is no IPv4 address");
        open(timeout_ms);
        if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
            return fail(timed_out() ? "does not answer" : "does not listen: is ue-rl policy-server running there?");
        line_ = "CONFIG:OBS=" + std::to_string(obs_size) + ";ACT=" + std::to_string(act_size);
        if (num_envs > 1) line_ += ";ENV_TYPE=MULTI;ENV_COUNT=" + std::to_string(num_envs);
        line_ += more + "\n";
        return send_line() || fail("closed the connection");
    }

    // actions [num_envs, act_size] for obs [num_envs, obs_size]. begins [num_envs]: 1 where an episode begins, which a
    // recurrent model must be told; null: nowhere.
    bool act(const float* obs, float* actions, const std::uint8_t* begins = nullptr) {
        if (socket_ == none) return fail("is not connected");
        line_.clear();
        for (int env = 0; env < num_envs_; env++) {
            for (int i = 0; i < obs_size_; i++) {
                char text[32];  // the shortest that reads back to this float, whatever the locale
                line_ += i ? "," : env ? "||OBS=" : "OBS=";
                line_.append(text, std::to_chars(text, text + sizeof text, *obs++).ptr);
            }
            if (num_envs_ > 1) line_ += ";ENV=" + std::to_string(env);
            if (begins && begins[env]) line_ += ";RESET=1";
        }
        line_ += '\n';
        if (!send_line() && timed_out()) return fail("does not read what it is sent");
        if (!read_line()) return fail(late_ ? "has not answered in time" : "closed the connection");
        if (line_.rfind("ERROR=", 0) == 0) return fail("refuses: " + line_.substr(6));
        return read_actions(actions) || fail("answers what are no actions: " + line_.substr(0, 100));
    }

    void close() {
        if (socket_ == none) return;
#ifdef _WIN32
        closesocket(socket_);
        WSACleanup();
#else
        ::close(socket_);
#endif
        socket_ = none;
        received_.clear();
    }

private:
#ifdef _WIN32
    using Socket = SOCKET;
    using Timeout = DWORD;
    using Size = int;
    static constexpr Socket none = INVALID_SOCKET;
    static constexpr int no_signal = 0;
    static Timeout timeout(int ms) { return static_cast<DWORD>(ms); }
    static bool timed_out() { return WSAGetLastError() == WSAETIMEDOUT; }
    static bool interrupted() { return false; }
#else
    using Socket = int;
    using Timeout = timeval;
    using Size = std::size_t;
    static constexpr Socket none = -1;
    static Timeout timeout(int ms) { return {ms / 1000, static_cast<suseconds_t>(ms % 1000 * 1000)}; }
    static bool timed_out() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS; }
    static bool interrupted() { return errno == EINTR; }
#ifdef MSG_NOSIGNAL
    static constexpr int no_signal = MSG_NOSIGNAL;  // a server that has gone is an error here, not a SIGPIPE
#else
    static constexpr int no_signal = 0;
#endif
#endif

    bool fail(const std::string& why) {
        close();
        error_ = "the policy server " + server_ + " " + why;
        return false;
    }

    void open(int timeout_ms) {
#ifdef _WIN32
        WSADATA data;
        WSAStartup(MAKEWORD(2, 2), &data);
#endif
        socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
        const int on = 1;
        const Timeout most = timeout(timeout_ms);
        set(IPPROTO_TCP, TCP_NODELAY, on);
        set(SOL_SOCKET, SO_RCVTIMEO, most);
        set(SOL_SOCKET, SO_SNDTIMEO, most);
#ifdef SO_NOSIGPIPE
        set(SOL_SOCKET, SO_NOSIGPIPE, on);
#endif
    }
    template <class T>
    void set(int level, int option, const T& value) {
        setsockopt(socket_, level, option, reinterpret_cast<const char*>(&value), sizeof value);
    }

    bool send_line() {
        for (std::size_t at = 0; at < line_.size();) {
            const auto sent = ::send(socket_, line_.data() + at, static_cast<Size>(line_.size() - at), no_signal);
            if (sent > 0) at += static_cast<std::size_t>(sent);
            else if (!interrupted()) return false;
        }
        return true;
    }

    bool read_line() {
        std::size_t end;
        for (std::size_t from = 0; (end = received_.find('\n', from)) == std::string::npos;) {
            from = received_.size();
            received_.resize(from + 65536);
            const auto count = ::recv(socket_, received_.data() + from, 65536, 0);
            received_.resize(from + (count > 0 ? static_cast<std::size_t>(count) : 0));
            late_ = count < 0 && timed_out();
            if (count == 0 || (count < 0 && !interrupted())) return false;
        }
        line_ = received_.substr(0, end);
        received_.erase(0, end + 1);
        return true;
    }

    // ACT=1,2;ENV=0||ACT=3,4;ENV=1: in the order in which the envs were asked.
    bool read_actions(float* actions) {
        const char *at = line_.data(), *const end = at + line_.size();
        const auto word = [&](const std::string& text) {
            const bool here = std::string_view(at, static_cast<std::size_t>(end - at)).substr(0, text.size()) == text;
            at += here ? text.size() : 0;
            return here;
        };
        for (int env = 0; env < num_envs_; env++) {
            for (int i = 0; i < act_size_; i++, actions++) {
                if (!word(i ? "," : env ? "||ACT=" : "ACT=")) return false;
                const auto [next, error] = std::from_chars(at, end, *actions);
                if (error != std::errc() || !std::isfinite(*actions)) return false;
                at = next;
            }
            if (num_envs_ > 1 && !word(";ENV=" + std::to_string(env))) return false;
        }
        return at == end;
    }

    Socket socket_ = none;
    int obs_size_ = 0, act_size_ = 0, num_envs_ = 0;
    bool late_ = false;
    std::string server_, error_, line_, received_;
};

}  // namespace ue_rl
