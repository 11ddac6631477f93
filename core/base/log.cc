#include "core/base/log.h"

#include <cstdio>
#include <utility>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "core/base/error.h"

namespace weft {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

struct Log::Impl {
  spdlog::logger logger{"weft"};
};

Log::Log(const LogOptions& options) : impl_(std::make_unique<Impl>()) {
  spdlog::logger& logger = impl_->logger;
  if (options.console) {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    if (options.rank != 0) sink->set_level(spdlog::level::warn);
    logger.sinks().push_back(std::move(sink));
  }
  if (!options.file.empty()) {
    try {
      logger.sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    } catch (const spdlog::spdlog_ex& e) {
      throw Error("{}: cannot write the log: {}", options.file, e.what());
    }
  }
  const std::string rank = options.ranks > 1 ? fmt::format(" rank {}", options.rank) : "";
  logger.set_pattern(fmt::format("%Y-%m-%d %H:%M:%S{} %^%l%$: %v", rank));
  logger.set_level(level_of(options.level));
  logger.flush_on(spdlog::level::debug);
  // A full disk is reported once; the run continues.
  logger.set_error_handler([told = false](const std::string& why) mutable {
    if (!std::exchange(told, true))
      fmt::print(stderr, "weft: the log cannot be written: {}\n", why);
  });
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::write(LogLevel level, std::string_view text) {
  impl_->logger.log(level_of(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace weft
