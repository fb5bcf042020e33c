#ifndef HAWSER_BASE_DESCRIBE_ERRNO_H_
#define HAWSER_BASE_DESCRIBE_ERRNO_H_

#include <string>

namespace hawser::fabric {

// "connection refused (ECONNREFUSED)".
std::string DescribeErrno(int error);

}  // namespace hawser::fabric

#endif  // HAWSER_BASE_DESCRIBE_ERRNO_H_
