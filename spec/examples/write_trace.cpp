// Write a trace (spec/trace.md) from C++17, without any library. Copy `Trace` into your engine.
//
//   g++ -std=c++17 -o write_trace write_trace.cpp
//   write_trace OUT STACK DTYPE SEQUENCES TOKENS IDS.txt POINT:CHANNELS:FILE…
//
// The program shows how it is used: it packs raw little-endian files, in the order of computing, into a trace.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// What a forward pass held. The host must be little-endian, as all that is stored is.
struct Trace {
    std::string stack, dtype = "float32", requested = "cpu", observed = "cpu";
    std::size_t sequences = 0, tokens = 0;
    std::vector<std::int64_t> ids;  // [sequences, tokens]

    // Add a point [sequences, tokens, channels], held in `dtype`, after those that were computed before it.
    void add(const std::string& point, std::size_t channels, std::vector<char> bytes) {
        if (bytes.size() != sequences * tokens * channels * (dtype == "float32" ? 4 : 2))
            throw std::runtime_error(point + " has " + std::to_string(bytes.size()) + " bytes");
        points.push_back({point, channels, std::move(bytes)});
    }

    void write(const std::string& path) const {
        const std::string stored = dtype == "float32" ? "F32" : dtype == "bfloat16" ? "BF16" : "F16";
        std::ostringstream header;
        header << "{\"__metadata__\":{\"weighbridge.trace\":" << quoted(facts()) << "}";
        std::size_t at = 0;
        for (const auto& point : points) {
            header << "," << quoted(point.name) << ":{\"dtype\":\"" << stored << "\",\"shape\":[" << sequences << ","
                   << tokens << "," << point.channels << "],\"data_offsets\":[" << at << ","
                   << at + point.bytes.size() << "]}";
            at += point.bytes.size();
        }
        header << "}";
        std::string text = header.str();
        text.resize((text.size() + 7) / 8 * 8, ' ');
        const std::uint64_t length = text.size();
        std::ofstream file(path, std::ios::binary);
        file.write(reinterpret_cast<const char*>(&length), sizeof length);
        file << text;
        for (const auto& point : points) file.write(point.bytes.data(), std::streamsize(point.bytes.size()));
        if (!file.flush()) throw std::runtime_error("cannot write " + path);
    }

private:
    struct Point {
        std::string name;
        std::size_t channels;
        std::vector<char> bytes;
    };
    std::vector<Point> points;

    std::string facts() const {
        std::ostringstream out;
        out << "{\"format\":\"trace/v0\",\"stack\":" << quoted(stack) << ",\"dtype\":" << quoted(dtype)
            << ",\"device\":{\"requested\":" << quoted(requested) << ",\"observed\":" << quoted(observed)
            << "},\"tokens\":[";
        for (std::size_t n = 0; n < ids.size(); n++)
            out << (n % tokens ? "," : n ? "],[" : "[") << ids[n];
        out << "]],\"order\":[";
        for (std::size_t n = 0; n < points.size(); n++) out << (n ? "," : "") << quoted(points[n].name);
        out << "]}";
        return out.str();
    }

    static std::string quoted(const std::string& text) {
        std::string out = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') out += '\\';
            out += c;
        }
        return out + "\"";
    }
};

int main(int count, char** words) try {
    if (count < 8) throw std::runtime_error("write_trace OUT STACK DTYPE SEQUENCES TOKENS IDS.txt POINT:CHANNELS:FILE...");
    Trace trace;
    trace.stack = words[2];
    trace.dtype = words[3];
    trace.sequences = std::stoul(words[4]);
    trace.tokens = std::stoul(words[5]);
    std::ifstream ids(words[6]);
    trace.ids.assign(std::istream_iterator<std::int64_t>(ids), {});
    if (trace.ids.size() != trace.sequences * trace.tokens) throw std::runtime_error("another number of token ids");
    for (int n = 7; n < count; n++) {
        std::istringstream word(words[n]);
        std::string point, channels, path;
        std::getline(std::getline(std::getline(word, point, ':'), channels, ':'), path);
        std::ifstream raw(path, std::ios::binary);
        trace.add(point, std::stoul(channels), {std::istreambuf_iterator<char>(raw), {}});
    }
    trace.write(words[1]);
    return 0;
} catch (const std::exception& problem) {
    std::cerr << problem.what() << "\n";
    return 1;
}
