// Write a run directory (spec/run-directory.md) from C++17, without any library. Copy the writer into your trainer.
//
//   g++ -std=c++17 -o write_run write_run.cpp
//   write_run DIRECTORY STEPS RATE
//
// The trainer below it shows how it is used: it fits a line to points, and every step of it is recorded.

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

// --- The writer ------------------------------------------------------------------------------------------------------
using Cells = std::vector<std::pair<std::string, std::string>>;  // names, and values as JSON
template <class C> double seconds() { return std::chrono::duration<double>(C::now().time_since_epoch()).count(); }
std::string number(double value) {
    if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    char digits[32];
    return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};  // the fewest that come back the same
}
std::string text(const std::string& words) {
    std::string out;
    for (const unsigned char c : words) {
        char escaped[8];
        out.append(escaped, std::snprintf(escaped, 8, c < 32 || c == '"' || c == '\\' ? "\\u%04x" : "%c", c));
    }
    return "\"" + out + "\"";
}
std::string object(const Cells& cells) {
    std::string out;
    for (const auto& [name, value] : cells) out += (out.empty() ? "{" : ",") + text(name) + ":" + value;
    return (out.empty() ? "{" : out) + "}";
}
struct Rows {  // a line each, in one write; what the disk does not take waits, and half a line is taken back
    explicit Rows(const std::filesystem::path& path) {
        std::filesystem::create_directories(path.parent_path());
        file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
        if (file < 0) throw std::system_error(errno, std::generic_category(), path.string());
    }
    void append(const Cells& row) {
        if (waiting.size() < 4'000'000) waiting += object(row) + "\n";  // else it is lost, and `end` counts one more
        const ssize_t wrote = broken ? -1 : write(file, waiting.data(), waiting.size());
        if (wrote == ssize_t(waiting.size())) whole += wrote, waiting.clear();
        else if (wrote > 0) broken = ftruncate(file, whole) != 0;
    }
    int file; bool broken = false; off_t whole = 0; std::string waiting;
};
struct Run {  // throws where the folder holds a run already or takes none, and never after that
    Run(const std::string& folder, Cells facts) : steps(folder + "/steps.jsonl"), events(folder + "/events.jsonl") {
        const double time = seconds<std::chrono::system_clock>();
        const std::time_t whole = std::time_t(time); char now[32];
        std::strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%S", std::gmtime(&whole));
        std::snprintf(now + 19, sizeof now - 19, ".%03dZ", int((time - double(whole)) * 1e3));
        const Cells own = {{"schema", text("weighbridge.run/v0")}, {"started", text(now)}, {"pid", number(getpid())}};
        facts.insert(facts.end(), own.begin(), own.end());
        std::ofstream fresh(folder + "/.run.json");
        if (!(fresh << object(facts) << std::endl)) throw std::runtime_error("the disk takes no run.json");
        std::filesystem::rename(folder + "/.run.json", folder + "/run.json");  // whole, or not there
    }
    ~Run() { event("end", {{"steps", number(taken)}, {"by", text(std::uncaught_exceptions() ? "exception" : "")}}); }
    void step(Cells row) {
        const double now = seconds<std::chrono::steady_clock>(), time = seconds<std::chrono::system_clock>();
        row.insert(row.begin(), {{"step", number(taken++)}, {"wall_ms", number(std::round((now - mark) * 1e9) / 1e6)}});
        row.insert(row.end(), {{"time", number(time)}, {"monotonic_s", number(now)}});
        steps.append(row);
        mark = seconds<std::chrono::steady_clock>();
    }
    void event(const std::string& name, Cells fields) {
        fields.insert(fields.begin(), {{"event", text(name)}, {"step", number(taken)}});
        events.append(fields);
    }
    Rows steps, events; int taken = 0; double mark = seconds<std::chrono::steady_clock>();
};

// --- A trainer -------------------------------------------------------------------------------------------------------
constexpr int CORPUS = 320, BATCH = 8;

std::string asked(const char* command) {  // what a program prints, without the end of its line
    char line[128] = "";
    FILE* pipe = popen(command, "r");
    const bool any = pipe && std::fgets(line, sizeof line, pipe);
    if (pipe) pclose(pipe);
    const std::string found = any ? line : "";
    return found.substr(0, found.find('\n'));
}

int main(int count, char** words) try {
    if (count != 4) throw std::invalid_argument("write_run DIRECTORY STEPS RATE");
    const int steps = std::atoi(words[2]);
    const double rate = std::atof(words[3]);
    const char* host = std::getenv("WEIGHBRIDGE_HOST");
    const std::string commit = asked("git rev-parse HEAD 2>/dev/null");
    const bool dirty = !asked("git status --porcelain --untracked-files=no 2>/dev/null").empty();
    const Cells data = {{"seq_len", "1"}, {"batch_size", number(BATCH)}, {"corpus_tokens", number(CORPUS)}};
    Run run(words[1], {{"requested_device", text("cpu")}, {"resolved_device", text("cpu")},
                       {"requested_steps", number(steps)}, {"host", text(host ? host : "")}, {"commit", text(commit)},
                       {"dirty", commit.empty() ? "null" : dirty ? "true" : "false"},
                       {"model", object({{"parameters", "2"}})}, {"data", object(data)}});
    double slope = 0, offset = 0;
    for (int step = 0, at = 0, wraps = 0; step < steps; step++, at += BATCH) {
        if (at == CORPUS) run.event("wrap", {{"wraps", number(++wraps)}, {"corpus_position", number(at)}}), at = 0;
        double loss = 0, by_slope = 0, by_offset = 0;
        for (int row = at; row < at + BATCH; row++) {
            const double x = row * 37 % CORPUS / double(CORPUS), noise = row * 101 % CORPUS / double(CORPUS) - 0.5;
            const double error = slope * x + offset - (2 * x + 1 + noise / 5);
            loss += error * error / BATCH;
            by_slope += 2 * error * x / BATCH;
            by_offset += 2 * error / BATCH;
        }
        slope -= rate * by_slope;
        offset -= rate * by_offset;
        const double norm = std::sqrt(by_slope * by_slope + by_offset * by_offset);
        std::printf("%d %.17g %.17g\n", step, loss, norm);
        run.step({{"loss", number(loss)}, {"grad_norm", number(norm)}, {"lr", number(rate)}, {"tokens", number(BATCH)},
                  {"corpus_position", number(at + BATCH)}, {"wraps", number(wraps)}});
    }
    return 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
