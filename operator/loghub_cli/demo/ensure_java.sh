#!/bin/sh
# Finds Java 17 or newer for Spark, else installs it from Debian, else ends with 1 and one line that says how to
# get it. With --look nothing is installed.
set -u
wanted=17

java_version() {
    java=java
    [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java="$JAVA_HOME/bin/java"
    # openjdk version "17.0.15" ... or, up to 8, "1.8.0_402"
    "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

debian() {
    /bin/sh "${0%/*}/debian.sh" "$@"
}

is_there() {
    found=$(java_version)
    [ -n "$found" ] && [ "$found" -ge "$wanted" ]
}

is_there && exit 0
declined=$(debian --check 2>&1)
if [ "${1:-}" != --look ] && [ -z "$declined" ]; then
    # A later Debian has only a later Java.
    debian "openjdk-$wanted-jre-headless" 2>/dev/null || debian default-jre-headless
    is_there && exit 0
fi
echo "Spark needs Java $wanted or newer (found: ${found:-none})${declined:+; $declined}; install it, e.g.: sudo apt-get install openjdk-$wanted-jre-headless (macOS: brew install openjdk@$wanted), or set JAVA_HOME" >&2
exit 1
