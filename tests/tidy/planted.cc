#include <utility>

// clang-tidy has to find the use after the move: arguments are evaluated in any order. Otherwise its silence
// about other sources means nothing.
namespace hawser {

struct Options {
  int* runtime;
  Options(Options&&);
};

int Connect(int runtime, Options options);

int ConnectAuto(Options options) { return Connect(*options.runtime, std::move(options)); }

}  // namespace hawser
