// etcd from its own module; a folder of this name gives the program its name, which
// `go build` would otherwise take from the module's path ("server").
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
