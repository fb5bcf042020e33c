#ifndef HAWSER_BASE_DESCRIBE_ERRNO_H_
#define HAWSER_BASE_DESCRIBE_ERRNO_H_

#include <string>

namespace hawser {

// "connection refused (ECONNREFUSED)".
std::string DescribeErrno(int error);

}  // namespace hawser

#endif  // HAWSER_BASE_DESCRIBE_ERRNO_H_
