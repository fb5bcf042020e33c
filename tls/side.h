#ifndef HAWSER_TLS_SIDE_H_
#define HAWSER_TLS_SIDE_H_

namespace hawser::tls {

// Which end of a session this is.
enum class Side { kClient, kServer };

}  // namespace hawser::tls

#endif  // HAWSER_TLS_SIDE_H_
