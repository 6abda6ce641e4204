// Consumes a logstore with the vendor's Go library, as tests/compat/consumers.py describes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	sls "github.com/aliyun/aliyun-log-go-sdk"
	consumerLibrary "github.com/aliyun/aliyun-log-go-sdk/consumer"
	"github.com/go-kit/kit/log"
)

type config struct {
	Endpoint   string `json:"endpoint"`
	Project    string `json:"project"`
	Logstore   string `json:"logstore"`
	Group      string `json:"group"`
	Consumer   string `json:"consumer"`
	KeyID      string `json:"keyId"`
	KeySecret  string `json:"keySecret"`
	HeartbeatS int    `json:"heartbeatS"`
	TimeoutS   int    `json:"timeoutS"`
	InOrder    bool   `json:"inOrder"`
	From       string `json:"from"`
	HoldFile   string `json:"holdFile"`
	RollBackAt string `json:"rollBackAt"`
	RollBackTo string `json:"rollBackTo"`
	SignV4     bool   `json:"signV4"`
}

type writer struct {
	config     config
	lock       sync.Mutex
	rolledBack bool
}

type read struct {
	Shard int      `json:"shard"`
	Lines []string `json:"lines"`
}

func main() {
	var settings config
	if err := json.NewDecoder(os.Stdin).Decode(&settings); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	option := consumerLibrary.LogHubConfig{
		Endpoint:                  settings.Endpoint,
		AccessKeyID:               settings.KeyID,
		AccessKeySecret:           settings.KeySecret,
		Project:                   settings.Project,
		Logstore:                  settings.Logstore,
		ConsumerGroupName:         settings.Group,
		ConsumerName:              settings.Consumer,
		HeartbeatIntervalInSecond: settings.HeartbeatS,
		HeartbeatTimeoutInSecond:  settings.TimeoutS,
		DataFetchIntervalInMs:     100,
		InOrder:                   settings.InOrder,
		Logger:                    log.NewSyncLogger(log.NewLogfmtLogger(os.Stderr)),
		DisableRuntimeMetrics:     true,
	}
	if settings.SignV4 {
		option.AuthVersion = sls.AuthV4
		option.Region = "embedded"
	}
	switch settings.From {
	case "begin":
		option.CursorPosition = consumerLibrary.BEGIN_CURSOR
	case "end":
		option.CursorPosition = consumerLibrary.END_CURSOR
	default:
		option.CursorPosition = consumerLibrary.SPECIAL_TIMER_CURSOR
		start, err := strconv.ParseInt(settings.From, 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		option.CursorStartTime = start
	}
	worker := consumerLibrary.InitConsumerWorkerWithProcessor(option, &writer{config: settings})
	worker.Start()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	worker.StopAndWait()
}

// Process prints the lines of a batch, then saves the checkpoint.
func (w *writer) Process(shard int, groups *sls.LogGroupList, tracker consumerLibrary.CheckPointTracker) (string, error) {
	lines := []string{}
	for _, group := range groups.LogGroups {
		for _, one := range group.Logs {
			for _, content := range one.Contents {
				lines = append(lines, content.GetValue())
			}
		}
	}
	w.waitWhileHeld()
	w.lock.Lock()
	defer w.lock.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(read{Shard: shard, Lines: lines}); err != nil {
		return "", err
	}
	for _, line := range lines {
		if !w.rolledBack && line == w.config.RollBackAt {
			w.rolledBack = true
			return w.config.RollBackTo, nil
		}
	}
	return "", tracker.SaveCheckPoint(true)
}

// Shutdown saves the checkpoint.
func (w *writer) Shutdown(tracker consumerLibrary.CheckPointTracker) error {
	return tracker.SaveCheckPoint(true)
}

func (w *writer) waitWhileHeld() {
	for {
		if _, err := os.Stat(w.config.HoldFile); err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
