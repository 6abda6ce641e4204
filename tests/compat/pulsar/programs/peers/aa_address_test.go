package pulsar

import "os"

// The tests have these as constants, with the ports of a broker in its default settings.
var serviceURL = os.Getenv("PULSAR_URL")

func init() {
	defaultLogin = login
	lookupURL = serviceURL
}

// login is for clients that have none of their own.
func login() Authentication {
	if token := os.Getenv("PULSAR_TOKEN"); token != "" {
		return NewAuthenticationToken(token)
	}
	return nil
}
