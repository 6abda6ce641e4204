// Asks an external scaler as KEDA does: with KEDA's own generated client.
//
// What for: the wire of our server, proven by code that was not written here. What it must
// not know: what is right; it prints a JSON line for each answer, or the gRPC code.
// Read next: tests/loghub_operator/autoscaling/keda/test_keda_client.py.
//
// Usage: keda-client ADDRESS NAMESPACE METRIC key=value ...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const guard = 60 * time.Second

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: keda-client ADDRESS NAMESPACE METRIC key=value ...")
		os.Exit(2)
	}
	connection, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	ask(ctx, pb.NewExternalScalerClient(connection), object(), os.Args[3])
}

func object() *pb.ScaledObjectRef {
	metadata := map[string]string{}
	for _, pair := range os.Args[4:] {
		key, value, _ := strings.Cut(pair, "=")
		metadata[key] = value
	}
	return &pb.ScaledObjectRef{Name: "an-object", Namespace: os.Args[2], ScalerMetadata: metadata}
}

func ask(ctx context.Context, client pb.ExternalScalerClient, object *pb.ScaledObjectRef, metric string) {
	active, err := client.IsActive(ctx, object)
	say("IsActive", active.GetResult(), err)
	spec, err := client.GetMetricSpec(ctx, object)
	for _, one := range spec.GetMetricSpecs() {
		say("GetMetricSpec", []any{one.GetMetricName(), one.GetTargetSize(), one.GetTargetSizeFloat()}, nil)
	}
	sayError("GetMetricSpec", err)
	values, err := client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: object, MetricName: metric})
	for _, one := range values.GetMetricValues() {
		say("GetMetrics", []any{one.GetMetricName(), one.GetMetricValue(), one.GetMetricValueFloat()}, nil)
	}
	sayError("GetMetrics", err)
	follow(ctx, client, object)
}

// Until standard input ends: its lines are not read for what they say.
func follow(ctx context.Context, client pb.ExternalScalerClient, object *pb.ScaledObjectRef) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		}
		cancel()
	}()
	stream, err := client.StreamIsActive(ctx, object)
	for err == nil {
		var active *pb.IsActiveResponse
		if active, err = stream.Recv(); err == nil {
			say("StreamIsActive", active.GetResult(), nil)
		}
	}
	sayError("StreamIsActive", err)
}

func say(call string, value any, err error) {
	if err != nil {
		sayError(call, err)
		return
	}
	line, _ := json.Marshal(map[string]any{"call": call, "value": value})
	fmt.Println(string(line))
}

func sayError(call string, err error) {
	if err != nil {
		line, _ := json.Marshal(map[string]any{"call": call, "code": status.Code(err).String()})
		fmt.Println(string(line))
	}
}
