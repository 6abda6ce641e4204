// Counts log groups with the vendor's Go consumer library, used as its documentation shows, for the benchmark
// tests/loghub_worker/bench_processor.py. It ends once it has had a number of log groups; with "logs" it reads
// the key and the value of each field, otherwise nothing.
//
// Usage: count ENDPOINT KEY SECRET PROJECT LOGSTORE GROUP LOG_GROUPS nothing|logs
package main

import (
	"os"
	"strconv"
	"sync/atomic"

	sls "github.com/aliyun/aliyun-log-go-sdk"
	consumer "github.com/aliyun/aliyun-log-go-sdk/consumer"
)

func main() {
	expected, err := strconv.ParseInt(os.Args[7], 10, 64)
	if err != nil {
		panic(err)
	}
	readsLogs := os.Args[8] == "logs"
	done := make(chan struct{})
	var seen, bytes atomic.Int64
	process := func(_ int, groups *sls.LogGroupList, tracker consumer.CheckPointTracker) (string, error) {
		if readsLogs {
			for _, group := range groups.LogGroups {
				for _, log := range group.Logs {
					for _, field := range log.Contents {
						bytes.Add(int64(len(field.GetKey()) + len(field.GetValue())))
					}
				}
			}
		}
		count := int64(len(groups.LogGroups))
		if total := seen.Add(count); total >= expected && total-count < expected {
			close(done)
		}
		return "", tracker.SaveCheckPoint(false)
	}
	worker := consumer.InitConsumerWorkerWithCheckpointTracker(consumer.LogHubConfig{
		Endpoint:                  os.Args[1],
		AccessKeyID:               os.Args[2],
		AccessKeySecret:           os.Args[3],
		Project:                   os.Args[4],
		Logstore:                  os.Args[5],
		ConsumerGroupName:         os.Args[6],
		ConsumerName:              "vendor",
		CursorPosition:            consumer.BEGIN_CURSOR,
		HeartbeatIntervalInSecond: 5,
		AllowLogLevel:             "error",
	}, process)
	worker.Start()
	<-done
	worker.StopAndWait()
}
