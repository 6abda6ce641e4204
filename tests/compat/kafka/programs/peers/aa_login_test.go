package kgo

import (
	"os"

	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// The tests log in with SCRAM or not at all. Go runs the init functions in the order of the files' names, and
// the next one opens the first client.
func init() {
	saslScram = plain.Auth{User: os.Getenv("KAFKA_USER"), Pass: os.Getenv("KAFKA_PASSWORD")}.AsMechanism()
}
