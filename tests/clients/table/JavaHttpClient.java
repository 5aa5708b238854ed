import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

class JavaHttpClient {
    public static void main(String[] urls) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String url : urls) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
                System.out.println(client.send(request, BodyHandlers.ofString()).statusCode() + " " + url);
            } catch (java.io.IOException error) {
                System.out.println("000 " + url + " " + error.getMessage());
            }
        }
    }
}
