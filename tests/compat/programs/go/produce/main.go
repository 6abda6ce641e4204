// Writes to a logstore with the vendor's Go SDK in every way that it has, as tests/compat/test_producers.py describes.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	sls "github.com/aliyun/aliyun-log-go-sdk"
)

type config struct {
	Endpoint  string `json:"endpoint"`
	Project   string `json:"project"`
	Logstore  string `json:"logstore"`
	KeyID     string `json:"keyId"`
	KeySecret string `json:"keySecret"`
	HashKey   string `json:"hashKey"`
}

type result struct {
	Written []string          `json:"written"`
	Refused map[string]string `json:"refused"`
	Shards  int               `json:"shards"`
}

func main() {
	var settings config
	if err := json.NewDecoder(os.Stdin).Decode(&settings); err != nil {
		fail(err)
	}
	provider := sls.NewStaticCredentialsProvider(settings.KeyID, settings.KeySecret, "")
	client := sls.CreateNormalInterfaceV2(settings.Endpoint, provider)
	done := result{Refused: map[string]string{}}
	shards, err := client.SplitNumShard(settings.Project, settings.Logstore, 0, 3)
	if err != nil {
		fail(err)
	}
	done.Shards = len(shards)
	compressions := map[string]int{"lz4": sls.Compress_LZ4, "none": sls.Compress_None, "zstd": sls.Compress_ZSTD}
	for name, compression := range compressions {
		for route, key := range map[string]*string{"balanced": nil, "by key": &settings.HashKey} {
			line := name + " " + route
			request := &sls.PostLogStoreLogsRequest{LogGroup: group(line), HashKey: key, CompressType: compression}
			if err := client.PostLogStoreLogsV2(settings.Project, settings.Logstore, request); err != nil {
				fail(err)
			}
			done.Written = append(done.Written, line)
		}
	}
	if err := client.PutLogs(settings.Project, settings.Logstore, group("plain call")); err != nil {
		fail(err)
	}
	done.Written = append(done.Written, "plain call")
	request := &sls.PostLogStoreLogsRequest{LogGroup: group("processed"), Processor: "parse"}
	if err := client.PostLogStoreLogsV2(settings.Project, settings.Logstore, request); err != nil {
		done.Refused["processor"] = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		fail(err)
	}
}

func group(line string) *sls.LogGroup {
	name, second := "line", uint32(1700000000)
	log := &sls.Log{Time: &second, Contents: []*sls.LogContent{{Key: &name, Value: &line}}}
	return &sls.LogGroup{Logs: []*sls.Log{log}}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
