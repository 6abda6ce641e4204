#!/bin/sh
# Java 17 or newer for Spark: found, else installed where we may (apt, as root), else one line that says how.
# With --look nothing is installed.
set -u
wanted=17

java_version() {
    java=java
    [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java="$JAVA_HOME/bin/java"
    # openjdk version "17.0.15" ... or, up to 8, "1.8.0_402"
    "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

found=$(java_version)
[ -n "$found" ] && [ "$found" -ge "$wanted" ] && exit 0
if [ "${1:-}" != --look ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Java $wanted (apt-get)"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        "openjdk-$wanted-jre-headless"; } >/dev/null 2>&1 ||
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends default-jre-headless >/dev/null
    found=$(java_version)
    [ -n "$found" ] && [ "$found" -ge "$wanted" ] && exit 0
fi
echo "Spark needs Java $wanted or newer (found: ${found:-none}); install it, e.g.: sudo apt-get install openjdk-$wanted-jre-headless (macOS: brew install openjdk@$wanted), or set JAVA_HOME" >&2
exit 1
