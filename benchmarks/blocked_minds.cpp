// A mind in C++ over text that blocks its thread; see blocked_minds.py.
// usage: blocked_minds tcp://HOST:PORT SECONDS TURNS
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

class Line {
 public:
  explicit Line(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("nobody listens");
  }

  std::string read() {
    for (;;) {
      const auto end = unread_.find('\n');
      if (end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      char bytes[4096];
      const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
      if (count <= 0) throw std::runtime_error("the engine has closed the connection");
      unread_.append(bytes, static_cast<size_t>(count));
    }
  }

  void write(const std::string& text) {
    if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("the engine does not take it");
  }

 private:
  int socket_;
  std::string unread_;
};

// A number of the infos, which are JSON in percent-encoding.
double number_of(const std::string& line, const std::string& name) {
  const std::string key = "%22" + name + "%22%3A";
  const auto at = line.find(key);
  if (at == std::string::npos) throw std::runtime_error("no " + name + " in " + line);
  return std::strtod(line.c_str() + at + key.size(), nullptr);
}

}  // namespace

int main(int, char** argv) {
  try {
    const std::string url = argv[1];
    const double seconds = std::atof(argv[2]);
    const int turns = std::atoi(argv[3]);
    Line line(std::atoi(url.substr(url.rfind(':') + 1).c_str()));
    line.read();
    line.write("ACT=RESET;ENV=0\n");
    line.read();
    for (int turn = 0; turn < turns; ++turn) {
      line.write("ACT=0,0;ENV=0\n");
      const std::string seen = line.read();
      const double now =
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      std::printf("{\"age\": %.4f, \"dropped\": %.0f}\n", now - number_of(seen, "made"),
                  number_of(seen, "dropped_observations"));
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
