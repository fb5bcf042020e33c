#include "polite_greeter.h"

#include "absl/strings/str_cat.h"

namespace greeter {

absl::Status PoliteGreeter::Greet(hawser::ServerContext&, Greeter::GreetParams::Reader request,
                                  Greeter::GreetResults::Builder reply) {
  people::Person::Reader person = request.getPerson();
  if (person.getName().size() == 0) return absl::InvalidArgumentError("whom? The person has no name");
  std::string title = person.hasTitle() ? absl::StrCat(person.getTitle().cStr(), " ") : "";
  reply.setGreeting(absl::StrCat("Good day, ", title, person.getName().cStr()));
  return absl::OkStatus();
}

}  // namespace greeter
